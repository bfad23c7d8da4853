package main

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/host"
)

// pages are the documentation by path from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	all := make(map[string]string)
	for _, name := range append(names, "../../README.md", "../../ARCHITECTURE.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// TestDocsFactory: the blocks that carry a file name are one factory; it is
// valid, and its tests pass.
func TestDocsFactory(t *testing.T) {
	dir := t.TempDir()
	block := regexp.MustCompile("(?ms)^(`{3,})(?:yaml|markdown) (\\S+)\n(.*?)^(`{3,})$")
	written := 0
	all := pages(t)
	longest := make(map[string]int)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, m := range block.FindAllStringSubmatch(all[name], -1) {
			if len(m[3]) <= longest[m[2]] { // a shorter one leaves out what its page is not about
				continue
			}
			longest[m[2]] = len(m[3])
			path := filepath.Join(dir, m[2])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(m[3]), 0o644); err != nil {
				t.Fatal(err)
			}
			written++
		}
	}
	if written < 8 {
		t.Fatalf("only %d files in the documentation", written)
	}
	for _, command := range []string{"validate", "test"} {
		cmd := exec.Command(binary, command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "warning:") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// TestDocsNames: what the documentation names is there: files behind its links,
// commands, flags. It tells of each code of findings and each metric.
func TestDocsNames(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([a-zA-Z0-9_/.-]+)\)`)
	command := regexp.MustCompile("`triphammer ([a-z-]+)((?: [a-z-]+)?)")
	flag := regexp.MustCompile("`--([a-z][a-z-]*)")
	var everything strings.Builder
	for name, text := range pages(t) {
		everything.WriteString(text)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", name, err)
			}
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			if m[1] == "demo-agent" || strings.HasPrefix(m[1], "__") || m[1] == "approve" || m[1] == "decline" { // the last two begin replies (SPEC 26.2)
				continue
			}
			root := client.NewRoot(thisHost)
			root.InitDefaultHelpCmd()
			root.InitDefaultCompletionCmd()
			c, rest, err := root.Find(append([]string{m[1]}, strings.Fields(m[2])...))
			if err != nil || !c.HasParent() || c.HasSubCommands() && len(rest) > 0 {
				t.Errorf("%s: there is no command %s", name, m[0])
			}
		}
		for _, m := range flag.FindAllStringSubmatch(text, -1) {
			if !hasFlag(m[1]) {
				t.Errorf("%s: no command has the flag --%s", name, m[1])
			}
		}
	}
	for source, pattern := range map[string]string{
		"../../schema/diagnostic.go":      `"((?:FF|TH)_[A-Z_]+)"`,
		"../../server/metrics/metrics.go": `"(triphammer_[a-z_]+)"`,
	} {
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(code), -1) {
			if !strings.Contains(everything.String(), m[1]) {
				t.Errorf("the documentation does not tell of %s", m[1])
			}
		}
	}
}

func hasFlag(name string) bool {
	all := client.NewRoot(thisHost).Commands()
	for len(all) > 0 {
		c := all[0]
		if c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil {
			return true
		}
		all = append(all[1:], c.Commands()...)
	}
	return false
}

// TestDataDirectory: docs/data-directory.md has each file of a data directory in its table.
func TestDataDirectory(t *testing.T) {
	table, _, _ := strings.Cut(pages(t)["../../docs/data-directory.md"], "\n\nThe directory")
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	w.start()
	entries, err := os.ReadDir(filepath.Join(w.dir, "data"))
	if err != nil || len(entries) < 10 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	names := []string{host.AddressFile, host.HostedFolder, "artifacts"} // not every server has these
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(strings.TrimSuffix(e.Name(), "-wal"), "-shm"))
	}
	for _, name := range names {
		if !strings.Contains(table, "\n| `"+name+"`") && !strings.Contains(table, "\n| `"+name+"/") {
			t.Errorf("docs/data-directory.md does not tell of %s", name)
		}
	}
}

// sources are the Go files of the program, and of its tests.
func sources(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".go" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCitedGuides: a section of a guide that a message of the program names is there.
func TestCitedGuides(t *testing.T) {
	cited := 0
	for _, source := range sources(t) {
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(docs/[a-z-]+\.md), "([^"]+)"`).FindAllStringSubmatch(string(code), -1) {
			if cited++; !strings.Contains(pages(t)["../../"+m[1]], "\n## "+m[2]+"\n") {
				t.Errorf("%s names the section %q of %s, which is not there", source, m[2], m[1])
			}
		}
	}
	if cited == 0 {
		t.Error("no message names a section: this test has nothing to do")
	}
}

// serveCommand is the command serve.
func serveCommand(t *testing.T) *cobra.Command {
	t.Helper()
	serve, _, err := client.NewRoot(thisHost).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	return serve
}

// TestSettings: docs/operating.md has each setting of the server in the table of its group, and
// no other.
func TestSettings(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../docs/operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string) // flag to its group
	var groups []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		first := strings.TrimSpace(cells[1])
		switch {
		case slices.ContainsFunc(settings.Groups, func(g settings.Group) bool { return g.Name == first }):
			groups = append(groups, first)
		case strings.HasPrefix(first, "`--") && len(groups) > 0:
			for flag := range strings.SplitSeq(first, "--") {
				if flag = strings.Trim(flag, "`, "); flag != "" {
					documented[flag] = groups[len(groups)-1]
				}
			}
		}
	}
	for i, g := range settings.Groups {
		if i >= len(groups) || groups[i] != g.Name {
			t.Fatalf("docs/operating.md has tables of %q; want one for each group, in the order of --help: %v", groups, settings.Groups)
		}
	}
	for _, f := range settings.Among(serveCommand(t).Flags()) {
		if documented[f.Name] != settings.GroupOf(f) {
			t.Errorf("--%s of serve has no row under %q in docs/operating.md, but under %q", f.Name, settings.GroupOf(f), documented[f.Name])
		}
		delete(documented, f.Name)
	}
	for name := range documented {
		t.Errorf("docs/operating.md has a row of --%s, which serve does not have", name)
	}
}

// TestSettingGroups: each flag of a server is a setting in a group, --help shows at most 12 of
// them, and with --all each.
func TestSettingGroups(t *testing.T) {
	serve := serveCommand(t)
	usual := settings.Usages(serve)
	if err := serve.Flags().Set("all", "true"); err != nil {
		t.Fatal(err)
	}
	all := settings.Usages(serve)
	shown := 0
	serve.LocalFlags().VisitAll(func(f *pflag.Flag) {
		line := "      --" + f.Name + " "
		if strings.Contains(usual, line) {
			shown++
		}
		switch setting := f.Name != "all" && f.Name != "help"; {
		case setting && settings.GroupOf(f) == "":
			t.Errorf("--%s is in no group", f.Name)
		case setting && !strings.Contains(all, line):
			t.Errorf("--help --all does not show --%s", f.Name)
		}
	})
	if shown--; shown != len(settings.Usual) || shown > 12 {
		t.Errorf("--help shows %d settings; want %d, and at most 12:\n%s", shown, len(settings.Usual), usual)
	}
}
