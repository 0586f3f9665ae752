package nodeagent

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// failStatus lets every status update fail.
func failStatus(err error) interceptor.Funcs {
	return interceptor.Funcs{SubResourceApply: func(
		context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption,
	) error {
		return err
	}}
}
