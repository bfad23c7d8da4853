//go:build full

package schema

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestJUnitSchema holds SPEC 3.3's junit to the XML Schema that CI servers
// publish, with libxml2's xmllint.
func TestJUnitSchema(t *testing.T) {
	for _, r := range []*Report{hostile(), {SchemaVersion: Version}} {
		file := filepath.Join(t.TempDir(), "report.xml")
		if err := os.WriteFile(file, printed(t, "junit", r), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("xmllint", "--noout", "--schema", "../third_party/junit/junit-10.xsd", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
