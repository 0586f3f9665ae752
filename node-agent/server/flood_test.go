package server_test

import (
	"net/http"
	"testing"

	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/listener-operator/listener-operator/internal/testutil/flood"
)

func TestConnectionsToTheAgentNeedLittleMemory(t *testing.T) {
	a := start(t, kubeletDir(t))
	_, err := a.registration().GetInfo(limited(t), &registrationv1.InfoRequest{}) // waits until the agent serves
	must(t, err)
	flood.Check(t, a.health, "http://"+a.health+"/healthz", http.StatusOK)
}
