//go:build full

package main

import (
	"regexp"
	"strings"
	"testing"
)

// served has a server with one webhook, and a delivery that started a run. Its functions are what
// a guide asks for between its commands.
const served = `set -euo pipefail
set -m
export TRIPHAMMER_DATA="$PWD/data" CI_JOB_ID=7
serve() { triphammer serve --data "$TRIPHAMMER_DATA" --max-runs 8 2>> "$PWD/serve.log" & server=$!; }
stop() { kill $server; wait $server; }
field() { sed -n 's/.*[{,]"'"$1"'":"\([^"]*\)".*/\1/p'; } # of each line of JSON, the last of the name
serve
until triphammer status > status.txt; do sleep 0.2; done
triphammer factories create default
triphammer environments create app --set 'command=["triphammer", "demo-agent"]'
head -c 32 /dev/urandom | base64 > first.secret
triphammer webhooks create github --scheme github --secret-stdin < first.secret
triphammer automations create triage --webhook github --environment app --prompt 'Greet whoever wrote.'
triphammer send github --secret-file first.secret --payload '{"name": "Ada"}'
delivery=$(triphammer deliveries list -o name)
run=$(triphammer runs list -o name)
triphammer runs watch "$run" | tail -n 1
`

// commandGuides are pages whose commands have names that a reader fills in: what is there before,
// what is filled in, and what must be true after them.
var commandGuides = map[string]struct {
	before string
	fill   []string
	after  string
}{
	"backup": {
		before: `mkdir backups; for i in $(seq 20); do touch "backups/2001-01-$i.tar"; done
artifact=$(triphammer api GET "/agent/runs/$run" | grep -o 'art_[0-9a-z]*' | head -n 1)
triphammer api GET "/agent/artifacts/$artifact/download" > left
triphammer factories log -o jsonl > log
`,
		fill: []string{
			"triphammer db restore FILE --data DIR", "stop; mv data old\ntriphammer db restore copy.db --data data", "FILE", "copy.db", "/var/backups/triphammer", "$PWD/backups",
			"set -eu\n", "serve\ntriphammer status --wait\n",
		},
		after: `[ "$(ls backups | wc -l)" = 14 ]
triphammer db restore "$(ls backups/20[2-9]*.tar)" --verify
[ "$(triphammer deliveries list -o name)" = "$delivery" ]
triphammer api GET "/agent/artifacts/$artifact/download" | cmp - left
triphammer factories log -o jsonl | cmp - log
triphammer db check
triphammer send github --secret-file first.secret --payload '{"name": "Grace"}' | grep '^202 '
`,
	},
	"upgrade": {
		// A drained server starts nothing, also after its start.
		fill: []string{"FILE", "copy.db", "triphammer status", "stop; serve\ntriphammer status", "NAME", "$(triphammer workers list -o jsonl | field name)", "triphammer workers resume", `stop; serve
triphammer status --wait
triphammer send github --secret-file first.secret --payload '{"name": "Grace"}'
second=$(triphammer runs list -o name --limit 1)
if triphammer runs watch "$second" --timeout 3s; then exit 1; fi
[ "$(triphammer runs show "$second" -o jsonl | field state)" = QUEUED ]
triphammer workers resume`},
		after: `triphammer runs watch "$second" | tail -n 1 | grep '^SUCCEEDED$'
triphammer db restore copy.db --verify
`,
	},
	"secrets": {
		before: "head -c 32 /dev/urandom | base64 > second.secret\n",
		fill:   []string{"NAME", "GITHUB_WEBHOOK_SECRET", "< file", "< second.secret"},
		after: `triphammer send github --secret-file second.secret --payload '{"name": "Grace"}' | grep '^202 '
if triphammer send github --secret-file first.secret --payload '{"name": "Mary"}'; then exit 1; fi
`,
	},
	"troubleshooting": {fill: []string{"ID", "$delivery"}},
	"examples": {
		before: "unset TRIPHAMMER_DATA\n",
		fill:   []string{"triphammer dev\n", "triphammer dev --once | grep '^SUCCEEDED$'\n"},
	},
	"checking": {
		before: `unset TRIPHAMMER_DATA
triphammer init demo && cd demo
cp -r . ../copy && rm -r ../copy/.git && mv ../copy factory
git add . && git commit -qm 'Another factory'
`,
	},
	"dashboard": {
		before: "export BROWSER=echo\n",
		fill:   []string{"run_0123456789abc", "$run"},
	},
	"hosted": {
		before: `triphammer webhooks create old
triphammer agents create reviewer --set agentType=FOREMAN --prompt 'Review.'
mkdir webhooks
triphammer definition show --newest --file webhooks/github.yaml > webhooks/github.yaml
echo '# for CI' >> webhooks/github.yaml
echo 'Say what it is about.' > triage.md
export EDITOR='sed -i 1i#edited'
`,
		fill:  []string{"webhooks/ci.yaml", "webhooks/github.yaml", "automations create triage", "automations create described", "environments create app", "environments create build"},
		after: "triphammer factories log | grep 'Listen to CI'\n",
	},
	"repositories": {
		fill:  []string{"1f2e3d4c", "$(triphammer definition history -o jsonl | field commit | tail -n 1)"},
		after: "triphammer audit list | grep unpin\n",
	},
	"night": {
		fill:  []string{"2026-12-01T08:00", "$(date --date=tomorrow +%FT%R)"},
		after: "triphammer automations list | grep 'triage .*paused'\n",
	},
	"public": {after: "[ -f factory/factory.yaml ]\n"},
	"nas":    {after: "[ -s copy.db ]\n"},
	"mcp": {
		after: `curl -sS --fail -H "Authorization: Bearer $(cat ~/.triphammer-key)" "$(triphammer status -o jsonl | field base_url)/api/v1/caller" | grep '"read"'
[ "$(stat --format=%a ~/.triphammer-key)" = 600 ]
`,
	},
}

// TestCommandGuides runs the commands of these pages, in their order, on a server.
func TestCommandGuides(t *testing.T) {
	for page, g := range commandGuides {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s", bashed(t, served+g.before+filled(t, page, g.fill)+g.after+"[ -z \"${TRIPHAMMER_DATA:-}\" ] || stop\n"))
		})
	}
}

// apiAnswers are calls of docs/api.md that are refused here, by their end: what answers, and why.
var apiAnswers = []struct{ call, status, why string }{
	{`/runs/\S+/(?:cancel|interrupt)`, "400", "the run has ended"},
	{`/runs/\S+/answer`, "409", "no answer of it was given up"},
	{`/runs/\S+/decision -d .*`, "409", "nothing of it waits for a person"},
	{`/conversations/\S+/interrupt`, "409", "no run of it is in progress"},
	{`(?:/followups|/retry) -d .*`, "422", "the demonstration agent keeps no session"},
	{`/factory/default/runs -d .*`, "422", "the factory has no foreman"},
	{`/workers/gpu/\w+`, "404", "no worker has this name"},
	{`/pending-secrets/ID\S*`, "404", "no sender has given a secret in a handshake"},
	{`/auth/sessions/ses_…`, "404", "nobody is signed in"},
	{`/subjects/story\S+`, "404", "nothing is about this subject"},
	{`/webhooks/github/check`, "409", "the webhook has no credential for an API"},
	{`/secrets/NAME/check`, "404", "no secret has this name"},
	{`/github-apps -d .*`, "409", "a secret has this name"},
}

// TestAPIGuide makes each call of docs/api.md, in their order, with curl.
func TestAPIGuide(t *testing.T) {
	out := bashed(t, served+`export TRIPHAMMER_API_KEY=$(triphammer keys create all --scope manage)
url=$(triphammer status -o jsonl | field base_url)
artifact=$(triphammer api GET "/agent/runs/$run" | grep -o 'art_[0-9a-z]*' | sort -u)
schedule=$(triphammer api POST /agent/schedules -d '{"name": "Weekly", "cron_schedule": "0 3 * * 1", "prompt": "Tidy up."}' | grep -o 'sch_[0-9a-z]*' | sort -u)
apply=$(triphammer definition history --limit 1 -o name)
set +e
curl() {
  echo "CALL $*"
  command curl --max-time 20 --output answer --write-out 'STATUS %{http_code}\n' "$@"
  head -c 300 answer; echo
}
`+filled(t, "api", []string{
		`"base": "0123456789ab"`, `"base": "'$(triphammer factories log --factory payments --limit 1 -o name)'"`, `"webhooks/old.yaml": null`, `"environments/old.yaml": "timeoutMinutes: 5\n"`,
		"0123456789ab", "'$(triphammer definition history --factory default --limit 2 -o jsonl | field commit | tail -n 1)'", `"dlv_…"`, `"'$delivery'"`, "dlv_…", "$delivery", "run_…", "$run", "art_…", "$artifact", "sch_…", "$schedule", "apl_…", "$apply", "{base_url}", "$url",
	})+"set -e\nstop\n")
	answers := regexp.MustCompile(`(?m)^CALL .*?(http://\S+/api/v1(/\S*.*))\nSTATUS (\d+)\n(.*)`).FindAllStringSubmatch(out, -1)
	if called := strings.Count(out, "\nCALL "); len(answers) < 100 || len(answers) != called {
		t.Fatalf("of %d calls %d are answered:\n%s", called, len(answers), out)
	}
	used := make(map[string]bool)
	for _, m := range answers {
		want := "2"
		for _, a := range apiAnswers {
			if regexp.MustCompile(a.call + "$").MatchString(m[2]) {
				want, used[a.call] = a.status, true
			}
		}
		if !strings.HasPrefix(m[3], want) {
			t.Errorf("%s is answered %s, and not %s…: %s", m[2], m[3], want, m[4])
		}
	}
	for _, a := range apiAnswers {
		if !used[a.call] {
			t.Errorf("no call ends like %s any more", a.call)
		}
	}
}

// filled are the commands of a page after a reader has filled in names.
func filled(t *testing.T, page string, names []string) string {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(pages(t)["../../docs/"+page+".md"], -1)
	if len(blocks) == 0 {
		t.Fatalf("%s.md has no commands", page)
	}
	var commands strings.Builder
	for _, b := range blocks {
		commands.WriteString(b[1])
	}
	return strings.NewReplacer(names...).Replace(commands.String())
}
