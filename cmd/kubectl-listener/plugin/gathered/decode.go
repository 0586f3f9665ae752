package gathered

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// maxFile is the most that is read of a file, in bytes: twice what the API server accepts of an object.
const maxFile = 6 << 20

// decoder decodes files in YAML, until the result needs too much memory.
type decoder struct{ left int64 }

func tooLarge(limit int64) error { return fmt.Errorf("it has more than %d bytes", limit) }

// unmarshal decodes a file. An alias is refused: gather writes none, and a few of them stand for any amount.
func (d *decoder) unmarshal(content []byte, into any) error {
	if len(content) > maxFile {
		return tooLarge(maxFile)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return err
	}
	if err := d.count(&document); err != nil {
		return err
	}
	var value any
	if err := document.Decode(&value); err != nil {
		return err
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, into)
}

// count counts what a node needs, about.
func (d *decoder) count(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		return errors.New("it has an alias")
	}
	if d.left -= 16 + int64(len(n.Value)); d.left < 0 {
		return errors.New("the archive has more than its size suggests")
	}
	for _, child := range n.Content {
		if err := d.count(child); err != nil {
			return err
		}
	}
	return nil
}
