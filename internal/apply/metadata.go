package apply

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchMetadata merges fields into the metadata of o, which then is as the API server answers. It is for objects that
// keep the labels and annotations of other writers. The API server rejects the patch for another object of the name,
// because its uid differs.
func PatchMetadata(ctx context.Context, c client.Client, o client.Object, manager string, fields map[string]any) error {
	fields["uid"] = o.GetUID()
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encoding a patch of metadata: %w", err)
	}
	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("patching the metadata of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}
