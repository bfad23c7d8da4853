package signature

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/schemes.md anew")

const (
	senders   = "../../docs/schemes.md"
	generated = "<!-- What follows is written by: go test ./factory/signature -run Senders -update -->\n"
)

// TestSenderRows: the rows of senders.json are sorted by name, so that a sender is easy to find.
func TestSenderRows(t *testing.T) {
	if rows := rowsOfSenders(); len(rows) < 100 || !slices.IsSortedFunc(rows, func(a, b *Scheme) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d rows, or not sorted", len(rows))
	}
}

// TestSendersPage: the page tells of every row what the row says, so that a row
// without documentation cannot be.
func TestSendersPage(t *testing.T) {
	page, err := os.ReadFile(senders)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(page), generated)
	if !found {
		t.Fatalf("%s has no line %s", senders, generated)
	}
	want := sendersText()
	if *update {
		if err := os.WriteFile(senders, []byte(before+generated+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if after != want {
		t.Errorf("%s is not what the table says; write it: go test ./factory/signature -run Senders -update", senders)
	}
}

func sendersText() string {
	var b strings.Builder
	proofs, likely := map[Proof]int{}, 0
	providers := map[string]bool{}
	for _, s := range All() {
		proofs[s.Proof]++
		if s.Likely {
			likely++
		}
		if !s.Generic() && s.Name != "basic" {
			providers[s.Provider] = true
		}
	}
	fmt.Fprintf(&b, "\n%d schemes of %d senders; %d schemes are certain and %d likely. Proof: %d published, %d package, %d derived.\n",
		len(All()), len(providers), len(All())-likely, likely, proofs[Published], proofs[Package], proofs[Derived])
	for _, s := range All() {
		fmt.Fprintf(&b, "\n## `%s`: %s\n\n%s\n\n", s.Name, s.Provider, s.Setup)
		fmt.Fprintf(&b, "- %s.\n- Time: %s.\n", upper(s.Method()), s.TimeWords())
		if names := s.IdentityHeaders(); len(names) > 0 {
			fmt.Fprintf(&b, "- A delivery is named by `%s`.\n", strings.Join(names, "` or `"))
		}
		for _, ask := range s.Asks() {
			fmt.Fprintf(&b, "- Asks %s.\n", ask)
		}
		if !s.BindsBody() && s.Algorithm != Token && s.Algorithm != Basic {
			b.WriteString("- The proof does not cover the body as a whole.\n")
		}
		if s.Note != "" {
			fmt.Fprintf(&b, "- %s\n", s.Note)
		}
		fmt.Fprintf(&b, "- %s; proof: %s. Documented at <%s>.\n", upper(s.Certainty()), s.Proof, s.Source)
	}
	return b.String()
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
