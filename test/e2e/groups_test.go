//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var selectedGroup = flag.String("scenarios", "", "run only the scenarios of a group, or all others if a ! is in front of it: core, faulty or openshift")

// groups are the scenarios that make targets run apart.
var groups = map[string][]func(*testing.T){
	// What every product relies on.
	"core": {
		TestEachReplicaIsReachedAtItsOwnAddress, TestABrokerThatMovesKeepsItsAddress,
		TestAnAddressFollowsAPodThatIsNotPinned, TestThreeReplicasShareOneListener, TestTwoListenersInOnePod,
		TestDeletionOfTheConfigurationWaitsForVolumesInUse, TestADeletedServiceGetsItsNodePortsAgain,
		TestANodeRestartsWithItsPods, TestTheKubeletRestarts, TestADeletedPodIsCleanedUpWhenTheKubeletRestarts,
		TestDeletedPodListenersAreRecreated, TestAPinnedVolumeBelongsToTheNodeOfItsFirstPod,
		TestAnEphemeralVolumeIsDeletedWithItsPod,
	},
	// These run on a cluster of their own, at the same time as the others: most stop nodes or parts of the cluster, so
	// that they run one after the other, and wait more than they compute. No permission is used by them alone.
	"faulty": {
		TestTheSamplesRun, TestFaultsUnderLoad, TestTheConfigurationCanBeDeletedWhileTheOperatorIsDown,
		TestAPodOfALostNodeStartsElsewhere, TestAPodWhoseMountWaitsLeavesALostNode, TestANodeRestartsWithItsPods,
		TestTheKubeletRestarts, TestAnAgentUpdatesVolumesAfterItsRestart,
		TestADeletedPodIsCleanedUpWhenTheKubeletRestarts, TestPodsRunWhileTheOperatorIsDown,
		TestAKeptAddressStaysWhileTheOperatorIsDown, TestAKilledOperatorKeepsItsLease,
	},
	// About Routes, constraints, projects and their users, and what every product relies on.
	"openshift": {
		TestEachReplicaIsReachedAtItsOwnAddress, TestThreeReplicasShareOneListener,
		TestAClassChangesBetweenRouteAndNodePort, TestEachReplicaHasARouteOfItsOwn,
		TestTLSTerminationFollowsTheClass, TestAPodWaitsForARejectedRoute, TestFilesFollowTheHostAndTheRouter,
		TestTheClassSelectsTheRouters, TestAnInvalidRouteIsReported, TestLongHostNamesAreTruncatedAndStayUnique,
		TestTwoListenersCannotShareAHost, TestOnlyCustomHostsRequirePermission,
		TestMustGatherCollectsWhatDoctorExamines, TestAUserOfAProjectAppliesTheExamples,
		TestPodsRunUnderTheirConstraints, TestThePodSecurityStandardFollowsTheAgentsConstraints,
		TestConstraintsAreRepaired, TestAMissingBindingIsNamed, TestARouteKeepsItsHostUntilTheClassChanges,
		TestAnEphemeralVolumeIsDeletedWithItsPod,
	},
}

// selectGroup makes the flags of package testing select the group.
func selectGroup() error {
	flag.Parse()
	if *selectedGroup == "" {
		return nil
	}
	name, others := strings.CutPrefix(*selectedGroup, "!")
	group, exists := groups[name]
	if !exists {
		return fmt.Errorf("-scenarios: there is no group %q; the groups are %q", name, slices.Sorted(maps.Keys(groups)))
	}
	var tests []string
	for _, test := range group {
		qualified := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		tests = append(tests, qualified[strings.LastIndex(qualified, ".")+1:])
	}
	option := "test.run"
	if others {
		option = "test.skip"
	}
	return flag.Set(option, "^("+strings.Join(tests, "|")+")$")
}
