package markdown

import (
	"testing"

	"triphammer/docs"
)

// TestGuideHTML: each guide can be translated: its HTML is pictures alone.
func TestGuideHTML(t *testing.T) {
	for _, name := range docs.Names() {
		text, ok := docs.Text(name)
		if !ok {
			t.Errorf("%s is not there", name)
		}
		for _, theme := range []string{"", "light", "dark"} {
			if _, _, err := Guide(text, "/base", theme, func(base, name string) (string, error) { return base + name, nil }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
