package schema

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// YAML respells JSON that this program made, keys in their order, for output.
func YAML(text []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("respelling JSON as YAML: %w", err)
	}
	blockStyle(&doc)
	return yaml.Marshal(&doc)
}

// blockStyle takes JSON's flow style and quotes off; the encoder quotes what
// needs it.
func blockStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0
	} else if len(n.Content) > 0 {
		n.Style = 0
	}
	for _, child := range n.Content {
		blockStyle(child)
	}
}
