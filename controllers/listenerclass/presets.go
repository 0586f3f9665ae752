package listenerclass

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

//go:embed presets/*.yaml
var presets embed.FS

// Preset returns the ListenerClasses of a preset, which has none if it is PresetNone. It returns an error if the preset
// does not exist.
func Preset(preset operatorv1alpha1.Preset) ([]*listenersv1alpha1.ListenerClass, error) {
	if preset == operatorv1alpha1.PresetNone {
		return nil, nil
	}
	file, err := presets.Open(fmt.Sprintf("presets/%s.yaml", preset))
	if err != nil {
		return nil, fmt.Errorf("opening preset %q: %w", preset, err)
	}
	defer func() { _ = file.Close() }() // closing an embedded file never fails
	var classes []*listenersv1alpha1.ListenerClass
	documents := utilyaml.NewYAMLReader(bufio.NewReader(file))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return classes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading preset %q: %w", preset, err)
		}
		class := &listenersv1alpha1.ListenerClass{}
		if err := yaml.UnmarshalStrict(document, class); err != nil {
			return nil, fmt.Errorf("decoding preset %q: %w", preset, err)
		}
		classes = append(classes, class)
	}
}
