package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl imitates kubectl on a cluster that has only the operator's namespace, with the Secret of the certificate
// authorities if SECRET is set. It prints what it deletes.
const kubectl = `#!/bin/sh
case "$*" in
*"get secret"*) echo "$SECRET" ;;
*"get customresourcedefinition"*) exit 1 ;;
*" delete "*|delete*) echo "kubectl $*" >&2 ;;
esac
`

// TestUndeploySaysThatAuthoritiesAreDeleted before it deletes anything, and how to keep them.
func TestUndeploySaysThatAuthoritiesAreDeleted(t *testing.T) {
	programs := t.TempDir()
	for name, script := range map[string]string{"kubectl": kubectl, "go": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte(script), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	for secret, warned := range map[string]bool{"": false, "secret/listener-operator-certificate-authorities": true} {
		cmd := exec.CommandContext(t.Context(), "./undeploy.sh")
		cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECTL=kubectl", "SECRET="+secret)
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		warning, deletion := strings.Index(string(output), "certificate authorities"), strings.Index(string(output), "kubectl delete")
		if deletion < 0 || warned != (warning >= 0 && warning < deletion) || !warned && warning >= 0 {
			t.Errorf("with the Secret %q: %s", secret, output)
		}
	}
}
