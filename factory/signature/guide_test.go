package signature

import (
	"regexp"
	"strings"
	"testing"
)

// TestGuides: every scheme has a guide that says where the URL and the secret go, and has
// a source.
func TestGuides(t *testing.T) {
	sentence := regexp.MustCompile("^[A-Z`{*]")
	for _, s := range All() {
		g := s.Guide()
		text := strings.Join(g.Steps, "\n")
		if !strings.Contains(text, "{url}") || !strings.Contains(text, "{secret}") && !s.Generic() {
			t.Errorf("%s: a step says where the URL goes, and one the secret:\n%s", s.Name, text)
		}
		if !strings.HasPrefix(g.Source, "https://") {
			t.Errorf("%s: source %q", s.Name, g.Source)
		}
		for _, step := range append(g.Steps, g.First) {
			if step != "" && (!sentence.MatchString(step) || !strings.HasSuffix(step, ".")) || strings.Count(step, "**")%2 != 0 || strings.Count(step, "`")%2 != 0 {
				t.Errorf("%s: %q is no sentence, or a mark is not closed", s.Name, step)
			}
		}
		filled := g.Fill("https://x.example/webhooks/w/1", "MY_SECRET")
		if text := strings.Join(filled.Steps, "\n"); strings.Contains(text, "{url}") || !strings.Contains(text, "`https://x.example/webhooks/w/1`") {
			t.Errorf("%s: not filled:\n%s", s.Name, text)
		}
	}
	for _, g := range []Guide{TokenGuide(), URLTokenGuide()} {
		if text := strings.Join(g.Fill("u", "S").Steps, "\n"); !strings.Contains(text, "`u`") || !strings.Contains(text, "`S`") {
			t.Error(text)
		}
	}
}
