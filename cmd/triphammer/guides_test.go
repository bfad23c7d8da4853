package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"triphammer/cmd/triphammer/client/help"

	"triphammer/cmd/triphammer/client"
)

// fence is a block of code, which has neither headings nor links nor sentences.
var fence = regexp.MustCompile("(?ms)^(`{3,})[^\n]*\n.*?^`{3,}$")

// TestDocsAnchors: a link to a section of a page finds a heading there.
func TestDocsAnchors(t *testing.T) {
	all := pages(t)
	anchors := make(map[string]map[string]bool)
	for name, text := range all {
		anchors[filepath.Clean(name)] = anchorsOf(text)
	}
	links := 0
	for name, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([a-zA-Z0-9_/.-]*)#([^)]+)\)`).FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			page := filepath.Clean(name)
			if m[1] != "" {
				page = filepath.Join(filepath.Dir(name), m[1])
			}
			if links++; !anchors[page][m[2]] {
				t.Errorf("%s: %s has no section #%s", name, page, m[2])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links to sections", links)
	}
}

// anchorsOf are the names that code forges give to the headings of a page.
func anchorsOf(text string) map[string]bool {
	anchors := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		unique := name
		for n := 1; anchors[unique]; n++ {
			unique = name + "-" + strconv.Itoa(n)
		}
		anchors[unique] = true
	}
	return anchors
}

// TestNames: no two commands have the same name or alias.
func TestNames(t *testing.T) {
	names := make(map[string]int)
	for _, c := range client.NewRoot(thisHost).Commands() {
		for _, name := range append(c.Aliases, c.Name()) {
			if names[name]++; names[name] > 1 {
				t.Errorf("two commands are named %s", name)
			}
		}
	}
}

// TestVariables: triphammer help variables has each variable that the code asks for.
func TestVariables(t *testing.T) {
	text := help.VariablesCommand(serveCommand(t).Flags()).Long
	inside := []string{"RECORDED_REQUESTS", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"} // of tests, and what Git sets for its hooks
	found := 0
	for _, source := range sources(t) {
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:Getenv|LookupEnv|secretVariable)\("([A-Z_]+)"\)`).FindAllSubmatch(code, -1) {
			found++
			if name := string(m[1]); !regexp.MustCompile(`\b`+name+`\b`).MatchString(text) && !slices.Contains(inside, name) {
				t.Errorf("%s asks for %s, which triphammer help variables lacks", source, name)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d variables are found", found)
	}
}

// TestTroubleshooting: docs/troubleshooting.md has a section for each station of the belt,
// and each reason for which a delivery is refused (SPEC 7.1, 7.2).
func TestTroubleshooting(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for source, want := range map[string]*regexp.Regexp{
		"../../server/delivery/belt.go":        regexp.MustCompile(`(?m)^\tStage[A-Z]\w* += "([a-z]+)"`),
		"../../server/delivery/delivery.go":    regexp.MustCompile(`(?m)^\tReason(?:InvalidJSON|TooLarge|Incomplete|TooSlow|Malformed) += "([a-z_]+)"`),
		"../../factory/signature/signature.go": regexp.MustCompile(`= "((?:header|signature|credential|timestamp|form)_[a-z_]+)"`),
	} {
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range want.FindAllStringSubmatch(string(code), -1) {
			mark := "`" + m[1]
			if strings.HasSuffix(source, "belt.go") {
				mark = "\n## " + m[1] + "\n"
			}
			if found++; !strings.Contains(string(text), mark) {
				t.Errorf("docs/troubleshooting.md does not tell of %q", m[1])
			}
		}
	}
	if found < 6+5+7 {
		t.Errorf("the code has only %d stations and reasons", found)
	}
}

// TestFirstWebhook runs the commands of docs/first-webhook.md. In place of GitHub, the server sends the
// event of step 6; TestConnectGitHub runs step 4.
func TestFirstWebhook(t *testing.T) {
	t.Parallel()
	labelled := "triphammer webhooks test github --payload \"$(triphammer samples show github issue_labeled | sed 's/\"bug\"/\"agent\"/g')\" --header 'X-GitHub-Event: issues'\n"
	out := walkWith(t, "../../docs/first-webhook.md", "triphammer connect github\n", "triphammer webhooks create github --scheme github\n",
		`["write"]`, `["grace"]`, "triphammer deliveries list\n", labelled+"triphammer deliveries list\n")
	for _, want := range []string{"https://laptop.example.com/webhooks/w/whk_", "a test by", `came   "bug"`, "✓ matched", "SUCCEEDED"} {
		if !strings.Contains(out, want) {
			t.Errorf("the guide does not print %q:\n%s", want, out)
		}
	}
}

// TestSentryGuide and TestScriptGuide run the commands of docs/sentry.md and docs/script.md.
func TestSentryGuide(t *testing.T) { walkExample(t, "../../docs/sentry.md") }

func TestScriptGuide(t *testing.T) { walkExample(t, "../../docs/script.md") }

func walkExample(t *testing.T, page string) {
	t.Helper()
	if out := walk(t, page); !strings.Contains(out, "SUCCEEDED") {
		t.Errorf("%s has no run:\n%s", page, out)
	}
}

// TestSenderGuides runs the commands of the guides for senders with definitions of their own:
// the webhook, the automations of the guide, and the samples.
func TestSenderGuides(t *testing.T) {
	file := regexp.MustCompile("(?ms)^(`{3,})(?:yaml|markdown) (automations/\\S+)\n(.*?)^`{3,}$")
	commands := regexp.MustCompile("(?s)```sh\n(.*?)```")
	for page, secret := range map[string]string{"github": "", "gitlab": "", "jira": "", "linear": "", "slack": "8f742231b10e8888abcd99yyyzzz85a5"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text := pages(t)["../../docs/"+page+".md"]
			var script strings.Builder
			script.WriteString(`set -euo pipefail
set -m
export TRIPHAMMER_DATA="$PWD/data"
triphammer serve --data "$TRIPHAMMER_DATA" --listen 127.0.0.1:0 2> serve.log &
until triphammer status > status.txt; do sleep 0.2; done
triphammer factories create acme
`)
			blocks := commands.FindAllStringSubmatch(text, -1)
			if len(blocks) != 2 {
				t.Fatalf("the guide has %d blocks of commands", len(blocks))
			}
			script.WriteString("{ " + blocks[0][1] + "} <<< '" + secret + "'\n")
			if strings.Contains(blocks[0][1], "--later") {
				script.WriteString("triphammer webhooks rotate " + page + " --secret-stdin <<< lin_wh_0123456789abcdef\n")
			}
			files := file.FindAllStringSubmatch(text, -1)
			for _, f := range files {
				script.WriteString("mkdir -p " + filepath.Dir(f[2]) + "\ncat > " + f[2] + " <<'END OF FILE'\n" + f[3] + "END OF FILE\ntriphammer definition put " + f[2] + "\n")
			}
			script.WriteString("until triphammer status --wait; do sleep 0.2; done\n" + blocks[1][1] +
				"triphammer deliveries show \"$(triphammer deliveries list -o name --limit 1)\"\nkill %1\nwait %1\n")
			out := bashed(t, script.String())
			if len(files) == 0 || !strings.Contains(out, "✓ authenticated") {
				t.Errorf("%d files, and no delivery is taken:\n%s", len(files), out)
			}
		})
	}
}

// TestPushHook pushes to a repository that has the hook of docs/checking.md.
func TestPushHook(t *testing.T) {
	t.Parallel()
	hook := regexp.MustCompile("(?s)```sh hooks/pre-receive\n(.*?)```").FindStringSubmatch(pages(t)["../../docs/checking.md"])
	if hook == nil {
		t.Fatal("the page has no hook")
	}
	bashed(t, `set -euo pipefail
git init -q --bare --initial-branch=main factory.git
cat > factory.git/hooks/pre-receive <<'END OF HOOK'
`+hook[1]+`END OF HOOK
chmod +x factory.git/hooks/pre-receive
triphammer init work
cd work
git remote add origin ../factory.git

# what is valid arrives
git push origin main 2> said
grep '^remote: valid: 5 files' said

# what is not valid is refused with the findings, also if it is hidden from archives
echo 'secretNam: W' > webhooks/w.yaml
echo 'webhooks export-ignore' > .gitattributes
git add -A
git commit -q -m Bad
if git push origin main 2> said; then exit 1; fi
grep '^remote: webhooks/w.yaml:1:1: error: ' said
grep 'pre-receive hook declined' said
[ "$(git -C ../factory.git rev-parse main)" = "$(git rev-parse HEAD~1)" ]
git push -q origin HEAD~1:main

# with a branch that is checked, another branch is not looked at
if git push origin HEAD:topic HEAD:main 2> said; then exit 1; fi
git push origin HEAD:topic 2> said
if grep valid said; then exit 1; fi

# the branch can be deleted
git -C ../factory.git config receive.denyDeleteCurrent ignore
git push -q origin :main
git -C ../factory.git branch | grep '^  topic$'

# nothing is left
[ -z "$(find "$TMPDIR" -maxdepth 1 -name 'tmp.*')" ]
`)
}
