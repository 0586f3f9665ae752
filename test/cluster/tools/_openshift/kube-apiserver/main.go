// Command kube-apiserver is OpenShift's API server. MicroShift has it in one program with everything else that it runs.
//
// The directory's name begins with an underscore, so that the go command ignores it in this module: package tools
// compiles it in a checkout of MicroShift, with the dependencies that are there.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
