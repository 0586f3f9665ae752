package message_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

var promise = regexp.MustCompile(`\b(left out|leaves out|ignored?s?|waits?|waiting|kept|keeps|no effect|stays?)\b`)

// promises has, for a part of each message that says that something is kept, left out or ignored, waits, or has no
// effect, a test in which that is so.
var promises = map[string]string{
	"waiting for the deletion of DaemonSet":                   "TestRemovalIncludesAgentsInOtherNamespaces",
	"but no controller creates one":                           "TestAnInlineVolumeThatCannotBeMountedIsRefused",
	"its addresses are kept":                                  "TestReadyListenerSaysWhyNothingListens",
	"; left out: ":                                            "TestUnusedNodesAreLeftOut",
	"it is kept by its finalizers":                            "TestAListenerThatIsDeletedHasNoAddressesWithoutItsService",
	"the deletion waits, because listener volumes are in use": "TestDeletionRemovesUnmanagedComponents",
	"[stays for the next Pod]":                                "TestAPodThatEndsBetweenTwoStatefulSetsKeepsItsNodePorts",
	"if the controller keeps names":                           "TestAPodThatEndsBetweenTwoStatefulSetsKeepsItsNodePorts",
	"is released from node %s, and waits for its Pod":         "TestVolumeOfALostNodeIsReplaced",
	"waiting for the garbage collector":                       "TestForeignObjectsAreNeverModified",
	"the removal waits for volumes":                           "TestRemovalWaitsForVolumesInUse",
	"the removal waits for the deletion of":                   "TestRemovalIncludesAgentsInOtherNamespaces",
	"agents stay where they are":                              "TestPlacementIsKeptWhileDeselectedNodesHaveUsers",
	"stays as it is until the Pod ends":                       "TestWhatRunsStays",
	"provisioned, which has no effect":                        "TestWhatRunsStays",
	"and what leads no other machine to it":                   "TestNodeAddress",
	"of ListenerClass %s has no effect":                       "TestIgnoredSettings",
	"this Listener keeps it":                                  "TestWhatRunsStays",
	"ignored, because metadata.namespace is not set":          "TestOverrideWithoutNamespaceIsReported",
	"or name another class. Until then":                       "TestAServiceThatCannotChangeStaysUntilItIsDeleted",
	"creates it as the class says, or name another":           "TestAServiceThatCannotChangeStaysUntilItIsDeleted",
	"the Pod comes from a backup, and waits":                  "TestClaimsAndInlineVolumes",
	"the claim comes from a backup, and waits":                "TestARestoredNamespaceKeepsItsNodePorts",
	"waiting for the first Pod":                               "TestClassBasedClaimWaitsForAPodWithoutAWarning",
	"which are ignored":                                       "TestUnknownFieldsInOverridesOfAClassAreIgnoredWithAWarning",
	"so Listener %s keeps class":                              "TestTheClassThatAClaimNamesIsFollowedWhileItsPodRuns",
	"waits for other addresses than the previous":             "TestAPodStartsWithPreviousAddressesOnlyIfNoOthersCome",
	"is kept for volume":                                      "TestAListenerThatIsKeptForAPodIsGivenToNoOther",
	"has no effect on %s: it must be":                         "TestWhatPeopleWriteInstead",
	"of the Pod waits for Listener":                           "TestErrorSaysWhyThereIsNoAddress",
	"kept for the next Pod of the same name":                  "TestClaimsAndInlineVolumes",
	"waits for an address of":                                 "TestPodGetsAnEventWithTheReasonOfAMissingAddress",
	"other volumes of the Pod wait":                           "TestFewMountsOfAPodWait",
}

func TestEachPromiseOfAMessageIsTested(t *testing.T) {
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	said := map[string]string{}
	root, err := checkout.Root()
	check.Must(t, err)
	for _, dir := range []string{"api/v1alpha1", "cmd/operator", "controllers", "internal", "node-agent"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.Contains(path, "testutil") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, "_test.go") {
				for _, name := range function.FindAllSubmatch(content, -1) {
					tests[string(name[1])] = true
				}
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, content, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				text := textOf(n)
				if strings.Contains(text, " ") && !strings.HasSuffix(text, ".") && promise.MatchString(text) { // not a help text
					said[text] = path
				}
				return text == ""
			})
			return nil
		})
		check.Must(t, err)
	}
	tested := map[string]bool{} // a message may promise several things
	for part, test := range promises {
		if !tests[test] {
			t.Errorf("%q is to be tested by %s, which does not exist", part, test)
		}
		found := false
		for text := range said {
			if strings.Contains(text, part) {
				found, tested[text] = true, true
			}
		}
		if !found {
			t.Errorf("no message says %q", part)
		}
	}
	for text, path := range said {
		if !tested[text] {
			t.Errorf("no test is named in which this is so (%s): %q", path, text)
		}
	}
}

// textOf returns the text of a literal, or of several that are added in a row, or "".
func textOf(n ast.Node) string {
	switch e := n.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		left, right := textOf(e.X), textOf(e.Y)
		if sum, ok := e.X.(*ast.BinaryExpr); ok && left == "" && right != "" { // of which the last one may be a literal
			left = textOf(sum.Y)
		}
		if left != "" && right != "" {
			return left + right
		}
	}
	return ""
}
