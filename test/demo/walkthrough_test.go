package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEachPodMustRunOneMember(t *testing.T) {
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "etcd-0"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "etcd-1"}},
	}
	for name, tc := range map[string]struct {
		members []member
		wantErr string
	}{
		"one member in each Pod": {
			members: []member{{ID: 1, Name: "etcd-0", Address: "a:1"}, {ID: 2, Name: "etcd-1", Address: "a:2"}},
		},
		"a member is missing": {
			members: []member{{ID: 1, Name: "etcd-0", Address: "a:1"}},
			wantErr: "1 members in 2 Pods",
		},
		"a member of another name": {
			members: []member{{ID: 1, Name: "etcd-0", Address: "a:1"}, {ID: 2, Name: "other", Address: "a:2"}},
			wantErr: "other is not in a Pod",
		},
		"two members at one address": {
			members: []member{{ID: 1, Name: "etcd-0", Address: "a:1"}, {ID: 2, Name: "etcd-1", Address: "a:1"}},
			wantErr: "etcd-0 and etcd-1 both",
		},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, checkMembers(tc.members, pods), tc.wantErr) })
	}
}

func TestMembersMustKeepIdentityAndAddress(t *testing.T) {
	before := []member{{ID: 1, Name: "etcd-0", Address: "a:1"}, {ID: 2, Name: "etcd-1", Address: "a:2"}}
	for name, tc := range map[string]struct {
		after   []member
		wantErr string
	}{
		"nothing changed":                    {after: before},
		"a member is missing":                {after: before[:1], wantErr: "now has 1"},
		"another port":                       {after: []member{before[0], {ID: 2, Name: "etcd-1", Address: "a:3"}}, wantErr: "a:2 is now 2 etcd-1 at a:3"},
		"another identity":                   {after: []member{{ID: 3, Name: "etcd-0", Address: "a:1"}, before[1]}, wantErr: "is now 3"},
		"two members that swapped addresses": {after: []member{{ID: 1, Name: "etcd-0", Address: "a:2"}, {ID: 2, Name: "etcd-1", Address: "a:1"}}, wantErr: "at a:1 is now 1 etcd-0 at a:2\n"},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, checkUnchanged(before, tc.after), tc.wantErr) })
	}
}

// wantError checks that the error has the text, or that there is none if the text is empty.
func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if (err == nil) != (text == "") || (err != nil && !strings.Contains(err.Error(), text)) {
		t.Errorf("error %v, want %q", err, text)
	}
}
