package applier

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

type object = map[string]any

// planned is a kind of definition with a valid file of it.
type plannedKind struct {
	kind, path string
	shape      *schema.Shape
	text       string // what the plan calls the text of a Markdown file
	base       any
}

var plannedKinds = []plannedKind{
	{"factory", "factory.yaml", &schema.Factory, "", object{"schemaVersion": "v1alpha1", "name": "X", "agentDefaults": object{"workerHost": "h"}}},
	{"agent", "agents/lead/agent.md", &schema.Agent, "prompt", object{"agentType": "FOREMAN"}},
	{"automation", "automations/a/automation.md", &schema.Automation, "prompt", object{"triggers": []any{object{"provider": "github", "event": "push"}}}},
	{"webhook", "webhooks/hook.yaml", &schema.Webhook, "", object{"secretName": "S"}},
	{"runner", "runners/r.yaml", &schema.Runner, "", object{"platform": object{"linux": object{"dockerImage": "i"}}}},
	{"environment", "environments/e.yaml", &schema.Environment, "", object{}},
	{"filter test", "tests/t.yaml", &schema.Tests, "", []any{object{"name": "n", "webhook": "hook", "payload": 1, "expect": []any{}}}},
	{"scorer", "scorers/s/scorer.md", &schema.Scorer, "rubric", object{
		"agents": []any{"lead"}, "labels": []any{object{"value": "a", "score": 1}, object{"value": "b", "score": 0}}, "passingScore": 0.5, "model": "m",
	}},
	{"benchmark suite", "benchmarks/b/suite.yaml", &schema.BenchmarkSuite, "", object{
		"name": "B", "agent": "lead", "tasks": []any{"one", "two"}, "configurations": []any{object{"name": "c", "agents": []any{object{"agent": "lead"}}}},
	}},
	{"benchmark task", "benchmarks/b/tasks/one.yaml", &schema.BenchmarkTask, "", object{"title": "t", "prompt": "p", "successCriteria": "s"}},
}

// variant says with which values a key is tried where its type does not: the
// other keys that it needs (a patch of the file, null deletes), and the values.
type variant struct {
	with   object
	values []any
}

// absent is the value of a key that is not there.
type absent struct{}

// plannedVariants are by kind and path.
var plannedVariants = map[string]variant{
	"factory.schemaVersion":        {}, // it has one value
	"factory.alias":                {values: []any{"x", "y"}},
	"factory.credentialStrategy":   {values: []any{"EXECUTOR", "CREATOR"}},
	"factory.repositories[].owner": {with: object{"repositories": []any{object{"owner": "a", "name": "b"}}}},
	"factory.repositories[].name":  {with: object{"repositories": []any{object{"owner": "a", "name": "b"}}}},
	"factory.integrations":         {with: object{"integrations": []any{object{"type": "slack"}}}},
	"factory.integrations[].type":  {values: []any{"slack", "jira"}},

	"factory.cloudProviders.gcp": {with: object{"cloudProviders": object{"gcp": object{
		"projectNumber": "1", "workloadIdentityFederationPoolId": "p", "workloadIdentityFederationProviderId": "q",
	}}}},
	"factory.providers.gcp": {with: object{"providers": object{"gcp": object{
		"projectNumber": "1", "workloadIdentityFederationPoolId": "p", "workloadIdentityFederationProviderId": "q",
	}}}},
	"harness.auth.secretName":                     {with: object{"harness": object{"auth": object{"source": "managedSecret"}}}},
	"harness.auth.source":                         {}, // tried with the whole of auth
	"harness.type":                                {values: []any{"claude", "codex"}},
	"harness.command":                             {with: object{"harness": object{"type": "acp"}}},
	"mcpServers.*.args":                           {with: object{"mcpServers": object{"k": object{"command": "c"}}}},
	"mcpServers.*.env":                            {with: object{"mcpServers": object{"k": object{"command": "c"}}}},
	"mcpServers.*.url":                            {values: []any{"https://a.example", "https://b.example"}},
	"mcpServers.*.headers":                        {with: object{"mcpServers": object{"k": object{"url": "https://a.example"}}}},
	"automation.retry.delaySeconds":               {with: object{"retry": object{"attempts": 2}}},
	"automation.report":                           {values: []any{"thread", "check", []any{"thread", "check"}}},
	"webhook.report":                              {with: object{"authMode": "signature", "signatureScheme": "github"}, values: []any{"thread", "check", []any{"thread", "check"}}},
	"environment.cache":                           {with: object{"setupCommands": []any{"true"}, "cache": object{"paths": []any{"a"}, "files": []any{"b"}}}},
	"environment.repositories[].secret":           {with: object{"repositories": []any{object{"url": "https://a.example/x.git"}}}},
	"environment.repositories[].access":           {with: object{"repositories": []any{object{"url": "https://a.example/x.git", "secret": "S"}}}},
	"automation.triggers[].schedule":              {with: object{"triggers": []any{object{"provider": "schedule", "event": "cron_fired"}}}, values: []any{object{"cron": "@daily"}, object{"cron": "@hourly"}}},
	"scorer.output":                               {values: []any{absent{}, "classification"}},
	"harness.auth":                                {with: object{"harness": object{"type": "claude"}}, values: []any{object{"source": "workerEnvironment"}, object{"source": "managedSecret", "secretName": "A"}, object{"source": "managedSecret", "secretName": "B"}}},
	"agent.agentType":                             {with: object{}, values: []any{"FOREMAN", "MAIN"}},
	"agent.credentialStrategy":                    {values: []any{"EXECUTOR", "CREATOR"}},
	"automation.outputs.addLabels.max":            {with: object{"outputs": object{"addLabels": object{"allowed": []any{"a"}}}}},
	"automation.outputs.removeLabels.max":         {with: object{"outputs": object{"removeLabels": object{"allowed": []any{"a"}}}}},
	"automation.outputs.assign.max":               {with: object{"outputs": object{"assign": object{"allowed": []any{"a"}}}}},
	"automation.outputs.message.max":              {with: object{"outputs": object{"message": object{"channels": []any{"C1"}}}}},
	"automation.outputs.ask.max":                  {values: []any{1}}, // no other is valid
	"automation.outputs.createIssue.repositories": {values: []any{[]any{"a/b"}, []any{"a/b", "a/c"}}},
	"automation.subject":                          {values: []any{"{a}", "{b}"}},
	"automation.settle":                           {values: []any{"30s", "1m"}},
	"automation.approval":                         {values: []any{[]any{"start"}, []any{"start", "outputs"}}},
	"automation.approvalTimeout":                  {values: []any{"5m", "720h"}},
	"automation.agent":                            {values: []any{"lead", "other"}},
	"automation.triggers[].provider":              {with: object{"triggers": []any{object{"event": "issue_created"}}}, values: []any{"github", "linear"}},
	"automation.triggers[].event":                 {with: object{"triggers": []any{object{"provider": "github"}}}, values: []any{"push", "issue_created"}},
	"automation.triggers[].filter":                {values: []any{object{"repos": []any{"a/b"}}, object{"repos": []any{"a/c"}}}},
	"automation.triggers[].schedule.cron":         {with: object{"triggers": []any{object{"provider": "schedule", "event": "cron_fired"}}}, values: []any{"@daily", "@hourly"}},
	"automation.triggers[].schedule.name":         {with: object{"triggers": []any{object{"provider": "schedule", "event": "cron_fired", "schedule": object{"cron": "@daily"}}}}},
	"webhook.authMode":                            {values: []any{"token", "url_token"}},
	"webhook.signatureScheme":                     {with: object{"authMode": "signature"}, values: []any{"github", "stripe"}},
	"webhook.signature":                           {with: object{"authMode": "signature", "signatureScheme": "hmac", "signature": object{"header": "X-Sig", "separator": ","}}},
	"webhook.signature.header":                    {values: []any{"X-A", "X-B"}},
	"webhook.signature.prefix":                    {values: []any{"a=", "b="}},
	"webhook.signature.secretEncoding":            {values: []any{"text", "base64"}},
	"webhook.signature.separator":                 {values: []any{",", ";"}},
	"webhook.signature.template":                  {values: []any{"{body}", "{method}{body}"}},
	"webhook.signature.timestampHeader":           {with: object{"signature": object{"template": "{ts}.{body}"}}, values: []any{"X-A", "X-B"}},
	"webhook.signature.timestampPrefix":           {with: object{"signature": object{"template": "{ts}.{body}", "prefix": "v=", "timestampHeader": nil}}, values: []any{"t=", "u="}},
	"webhook.signature.timestampFormat":           {with: object{"signature": object{"template": "{ts}.{body}", "timestampHeader": "X-T"}}},
	"webhook.signature.idHeader":                  {with: object{"signature": object{"template": "{id}.{body}"}}, values: []any{"X-A", "X-B"}},
	"webhook.signature.toleranceSeconds":          {with: object{"signature": object{"template": "{ts}.{body}", "timestampHeader": "X-T"}}},
	"webhook.accounts":                            {with: object{"authMode": "signature", "signatureScheme": "gitlab"}},
	"webhook.connect":                             {with: object{"authMode": "signature", "signatureScheme": "slack", "appTokenName": "T"}, values: []any{"socket"}},
	"webhook.appTokenName":                        {with: object{"authMode": "signature", "signatureScheme": "slack", "connect": "socket"}},
	"webhook.apiSecretName":                       {with: object{"authMode": "signature", "signatureScheme": "slack"}},
	"webhook.apiURL": {
		with:   object{"authMode": "signature", "signatureScheme": "github", "apiSecretName": "T"},
		values: []any{"https://a.example/api/v3", "http://localhost:80/"},
	},
	"webhook.replayWindow":                            {with: object{"authMode": "signature", "signatureScheme": "github"}, values: []any{"10m", "1h"}},
	"webhook.deliveryIdHeader":                        {values: []any{"X-A", "X-B"}},
	"runner.instanceShape":                            {with: object{"instanceShape": object{"vcpus": 4, "memoryGb": 4}}},
	"runner.instanceShape.vcpus":                      {values: []any{2, 4}},
	"runner.instanceShape.memoryGb":                   {values: []any{2, 4}},
	"runner.platform.os":                              {with: object{"platform": object{"linux": nil, "arch": "aarch64"}}, values: []any{"macos"}},
	"runner.platform.mac":                             {with: object{"platform": object{"linux": nil, "os": "macos"}}},
	"environment.repositories[].url":                  {values: []any{"https://a.example/x.git", "https://a.example/y.git"}},
	"environment.repositories[].ref":                  {with: object{"repositories": []any{object{"url": "https://a.example/x.git"}}}},
	"environment.repositories[].path":                 {with: object{"repositories": []any{object{"url": "https://a.example/x.git"}}}},
	"environment.repositories[].owner":                {with: object{"repositories": []any{object{"name": "b"}}}},
	"environment.repositories[].name":                 {with: object{"repositories": []any{object{"owner": "b"}}}},
	"environment.services[]":                          {with: object{"services": []any{object{"name": "a", "url": "https://a.example", "secretName": "S", "paths": []any{"/a"}}}}},
	"environment.services[].name":                     {values: []any{"a", "b"}},
	"environment.services[].url":                      {values: []any{"https://a.example", "https://b.example"}},
	"environment.services[].methods":                  {values: []any{[]any{"GET"}, []any{"GET", "POST"}}},
	"environment.services[].header":                   {values: []any{"A: x", "B: x"}},
	"environment.services[].paths":                    {values: []any{[]any{"/a"}, []any{"/b"}}},
	"environment.network":                             {values: []any{"on", "off", []any{"a.example"}}},
	"filter test[].webhook":                           {values: []any{"hook", "hook2"}},
	"filter test[].expect":                            {values: []any{[]any{}, []any{"a"}}},
	"filter test[].payload":                           {values: []any{nil, 1, object{"a": nil}}},
	"filter test[].payloadFile":                       {with: object{"payload": nil}, values: []any{"p.json", "q.json"}},
	"scorer.agents":                                   {values: []any{[]any{"lead"}, []any{"lead", "other"}}},
	"scorer.labels[].score":                           {values: []any{0.9, 0.8}},
	"scorer.passingScore":                             {values: []any{0.5, 0.6}},
	"benchmark suite.agent":                           {values: []any{"lead", "other"}},
	"benchmark suite.configurations[].agents[].agent": {values: []any{"lead", "other"}},
	"benchmark suite.configurations[].agents[].harness": {with: object{"configurations": []any{object{"agents": []any{object{
		"harness": object{"type": "claude", "model": "m", "auth": object{"source": "managedSecret", "secretName": "A"}},
	}}}}}},
	"benchmark suite.tasks":           {values: []any{[]any{"one", "two"}, []any{"two", "one"}}},
	"benchmark task.startingRepoRefs": {values: []any{[]any{"github.com:a/b@" + strings.Repeat("0", 40)}, []any{"github.com:a/b@" + strings.Repeat("1", 40)}}},
}

// TestPlanNamesEveryKey changes every key of every kind of definition: the plan
// shows an update that names the key, with both values. The keys are those of the
// parser's tables, so that none can be forgotten.
func TestPlanNamesEveryKey(t *testing.T) {
	base := object{}
	for _, k := range plannedKinds {
		base[k.path] = k.base
	}
	tried := 0
	for _, k := range plannedKinds {
		every(k.shape, k.kind, func(path string, shape *schema.Shape) {
			with, values := variantOf(path, shape)
			for i := 1; i < len(values); i++ {
				tried++
				was, is := changedFile(k, path, with, values[i-1]), changedFile(k, path, with, values[i])
				before, after := plannedTree(t, path, k, was), plannedTree(t, path, k, is)
				if before == nil || after == nil {
					return
				}
				key := strings.ReplaceAll(strings.TrimPrefix(path, k.kind), "[]", "[0]")
				if key = strings.TrimPrefix(key, "."); k.kind == "filter test" {
					key = "tests" + key
				}
				namesUpdate(t, Diff(before, after), k.kind, strings.ReplaceAll(key, "*", "k"))
				// The order of keys, and comments, are no change.
				if p := Diff(after, plannedTree(t, path, k, "# as before\n"+reversed(is))); p.Pending() {
					t.Errorf("%s: in another order: %+v", path, p.Update)
				}
			}
		})
		if k.kind == "runner" {
			namesUpdate(t, Diff(plannedTree(t, k.kind, k, text(k.base)), plannedTree(t, k.kind, k, "platform: {os: macos}")), k.kind, "platform.os")
		}
		if k.text != "" {
			namesUpdate(t, Diff(plannedTree(t, k.kind, k, text(k.base)), plannedTree(t, k.kind, k, text(k.base), "Another text.")), k.kind, k.text)
		}
	}
	if t.Logf("%d changes", tried); tried < 140 {
		t.Errorf("%d changes are too few to prove much", tried)
	}
}

// namesUpdate wants an update of one definition that has the key, or a key within
// it, with values that differ.
func namesUpdate(t *testing.T, p Plan, kind, key string) {
	t.Helper()
	for _, u := range p.Update {
		for i, v := range u.Values {
			if u.Kind == kind && (v.Key == key || strings.HasPrefix(v.Key, key+".") || strings.HasPrefix(v.Key, key+"[")) && v.Before != v.After && u.Keys[i] == v.Key {
				return
			}
		}
	}
	t.Errorf("no update of a %s names %q: %+v", kind, key, p.Update)
}

// every calls visit for each key below a shape that has no keys of its own, and
// for each mapping that can be null.
func every(shape *schema.Shape, path string, visit func(string, *schema.Shape)) {
	switch shape.Type {
	case schema.TypeMap:
		for i := range shape.Keys {
			every(&shape.Keys[i].Shape, path+"."+shape.Keys[i].Name, visit)
		}
		if shape.Nullable {
			visit(path, shape)
		}
	case schema.TypeList:
		if shape.Elem.Type == schema.TypeMap {
			every(shape.Elem, path+"[]", visit)
			return
		}
		visit(path, shape)
	case schema.TypeMapOf:
		if shape.Elem.Type == schema.TypeMap {
			every(shape.Elem, path+".*", visit)
			return
		}
		visit(path, shape)
	default:
		visit(path, shape)
	}
}

// variantOf is how a key is tried: what the table says of it, of what it is in,
// and of the settings that several kinds share.
func variantOf(path string, shape *schema.Shape) (with []patch, values []any) {
	for _, at := range slices.Sorted(maps.Keys(plannedVariants)) { // the wider first
		v := plannedVariants[at]
		if v.with == nil && v.values == nil && (at == path || strings.HasSuffix(path, "."+at)) {
			return nil, nil
		}
		switch within, shared := strings.CutSuffix(path, "."+at); {
		case shared:
			with, values = append(with, patch{stepsOf(within), v.with}), v.values
		case at == path || strings.HasPrefix(path, at+".") || strings.HasPrefix(path, at+"["):
			with = append(with, patch{nil, v.with})
			if at == path {
				values = v.values
			}
		}
	}
	if values != nil {
		return with, values
	}
	switch shape.Type {
	case schema.TypeString:
		if values = []any{"x", "y"}; len(shape.Enum) > 1 {
			values = []any{shape.Enum[0], shape.Enum[1]}
		}
	case schema.TypeBool:
		values = []any{true, false}
	case schema.TypeInt, schema.TypeNumber:
		values = []any{1, 2}
	case schema.TypeList:
		values = []any{[]any{"x"}, []any{"x", "y"}}
	case schema.TypeMapOf:
		values = []any{object{"A": "x"}, object{"A": "y"}, object{"A": "y", "B": "z"}}
	default:
		values = []any{"x", 1}
	}
	return with, values
}

// changedFile is a file of the kind with a value at a path.
func changedFile(k plannedKind, path string, with []patch, value any) string {
	var root any
	_ = json.Unmarshal([]byte(encode(k.base)), &root)
	for _, p := range with {
		root = put(root, p.at, func(old any) any { return patched(old, p.with) })
	}
	return encode(put(root, stepsOf(path), func(any) any { return value }))
}

// patch is what is changed in the mapping at a place.
type patch struct {
	at   []string
	with object
}

// stepsOf leads to a path from its file's root, whose name it begins with.
func stepsOf(path string) []string {
	return strings.Split(strings.ReplaceAll(path, "[]", ".[]"), ".")[1:]
}

func patched(root any, with object) any {
	if list, is := root.([]any); is {
		return []any{patched(list[0], with)}
	}
	m, _ := root.(object)
	if m = maps.Clone(m); m == nil {
		m = object{}
	}
	for key, value := range with {
		switch value := value.(type) {
		case nil:
			delete(m, key)
		case object:
			m[key] = patched(m[key], value)
		case []any:
			if one, is := value[0].(object); is {
				if list, has := m[key].([]any); has {
					m[key] = append([]any{patched(list[0], one)}, list[1:]...)
				} else {
					m[key] = []any{patched(nil, one)}
				}
			} else {
				m[key] = value
			}
		default:
			m[key] = value
		}
	}
	return m
}

func put(at any, steps []string, value func(any) any) any {
	if len(steps) == 0 {
		return value(at)
	}
	if steps[0] == "[]" {
		list, _ := at.([]any)
		if len(list) == 0 {
			return []any{put(nil, steps[1:], value)}
		}
		return append([]any{put(list[0], steps[1:], value)}, list[1:]...)
	}
	m, _ := at.(object)
	if m = maps.Clone(m); m == nil {
		m = object{}
	}
	key := strings.ReplaceAll(steps[0], "*", "k")
	m[key] = put(m[key], steps[1:], value)
	if m[key] == (absent{}) {
		delete(m, key)
	}
	return m
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// text is a file as YAML, which JSON is.
func text(value any) string { return encode(value) }

// reversed writes a file's keys the other way round.
func reversed(file string) string {
	var value any
	_ = json.Unmarshal([]byte(file), &value)
	var write func(any) string
	write = func(v any) string {
		switch v := v.(type) {
		case object:
			var all []string
			for _, key := range slices.Backward(slices.Sorted(maps.Keys(v))) {
				all = append(all, encode(key)+": "+write(v[key]))
			}
			return "{" + strings.Join(all, ", ") + "}"
		case []any:
			var all []string
			for _, item := range v {
				all = append(all, write(item))
			}
			return "[" + strings.Join(all, ", ") + "]"
		}
		return encode(v)
	}
	return write(value)
}

// plannedTree builds the tree of all kinds with another file of one; nil, with an
// error, if it is not valid.
func plannedTree(t *testing.T, what string, k plannedKind, file string, body ...string) *Revision {
	t.Helper()
	files := []string{
		"agents/other/agent.md", "---\n---\n", "webhooks/hook2.yaml", "secretName: S\n", "benchmarks/b/tasks/two.yaml", `{"title": "t", "prompt": "p", "successCriteria": "s"}`,
		"tests/p.json", "1", "tests/q.json", "2", "environments/x.yaml", "{}", "environments/y.yaml", "{}",
	}
	for _, one := range plannedKinds {
		content, below := text(one.base), "A text."
		if one.path == k.path {
			content = file
			if len(body) > 0 {
				below = body[0]
			}
		}
		if one.text != "" {
			content = "---\n" + content + "\n---\n" + below + "\n"
		}
		files = append(files, one.path, content)
	}
	b, err := Build(t.Context(), BuildInput{Factory: "f", Tree: tree(files...)})
	if err != nil || b.Revision == nil {
		t.Errorf("%s: %s is not valid, so that nothing is tried: %v %+v", what, file, err, b.Diagnostics)
		return nil
	}
	return b.Revision
}

// TestPlanShows: what an update of a trigger or of an inherited setting shows.
func TestPlanShows(t *testing.T) {
	const fires = "---\ntriggers: [{provider: schedule, event: cron_fired, "
	on := func(filter string) string {
		return "---\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook], payload: {" + filter + "}}}]\n---\nGo."
	}
	many := func(value string) string {
		var b strings.Builder
		for i := range maxParts + 1 {
			fmt.Fprintf(&b, "k%d: [%s], ", i, value)
		}
		return on(b.String())
	}
	for _, c := range []struct {
		name, was, is string
		want          []ValueChange
	}{
		{"schedule_ids", fires + "filter: {schedule_ids: [a]}}]\n---\nGo.", fires + "filter: {schedule_ids: [b]}}]\n---\nGo.", []ValueChange{{"triggers[0].filter.schedule_ids", `["a"]`, `["b"]`}}},
		{"schedule.name", fires + "schedule: {cron: '@daily'}}]\n---\nGo.", fires + "schedule: {cron: '@daily', name: x}}]\n---\nGo.", []ValueChange{{"triggers[0].schedule.name", "", `"x"`}}},
		{"a filter grows", on("a: [1]"), on("a: [1, 2], b: {exists: true}"), []ValueChange{
			{"triggers[0].filter.payload.a", "[1]", "[1,2]"}, {"triggers[0].filter.payload.b", "", `{"exists":true}`},
		}},
		{"null is a value", on("a: {in: [null]}"), on("a: {in: [1]}"), []ValueChange{{"triggers[0].filter.payload.a.in", "[null]", "[1]"}}},
		{"a key that is no word", on(`"x\ny": [1]`), on(`"x\ny": [2]`), []ValueChange{{`triggers[0].filter.payload."x\ny"`, "[1]", "[2]"}}},
		{"a default, written out", on("a: [1]"), "---\nenabled: true # as ever" + strings.TrimPrefix(on("a: [1]"), "---"), nil},
		{"< and >", on("a: ['<']"), on("a: ['>']"), []ValueChange{{"triggers[0].filter.payload.a", `["<"]`, `[">"]`}}},
	} {
		p := Diff(revision(t, "webhooks/hook.yaml", webhookYAML, "automations/a.md", c.was), revision(t, "webhooks/hook.yaml", webhookYAML, "automations/a.md", c.is))
		var got []ValueChange
		for _, u := range p.Update {
			got = append(got, u.Values...)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	p := Diff(revision(t, "webhooks/hook.yaml", webhookYAML, "automations/a.md", many("1")), revision(t, "webhooks/hook.yaml", webhookYAML, "automations/a.md", many("2")))
	if len(p.Update) != 1 || !slices.Equal(p.Update[0].Keys, []string{"triggers[0].filter.payload"}) {
		t.Errorf("many changes in one place: %+v", p.Update)
	}
	// What agents and automations inherit changes with them.
	lead, other := "---\nagentType: FOREMAN\nharness: {reasoningLevel: high}\n---\n", "---\nmodel: own\nmcpServers: {}\n---\n"
	defaults := func(model, server string) string {
		return factoryYAML + "agentDefaults: {harness: {type: codex, model: " + model + "}, mcpServers: {m: {warpId: '" + server + "'}}}\n"
	}
	build := func(text string) *Revision {
		return revision(t, "factory.yaml", text, "agents/lead/agent.md", lead, "agents/other/agent.md", other, "automations/a.md", fires+"schedule: {cron: '@daily'}}]\n---\nGo.")
	}
	var got []string
	for _, u := range Diff(build(defaults("x", "1")), build(defaults("y", "2"))).Update {
		got = append(got, u.Kind+" "+u.Name+" "+strings.Join(u.Keys, " "))
	}
	want := []string{"agent lead harness.model mcpServers.m.warpId", "automation a harness.model mcpServers.m.warpId", "factory default agentDefaults.harness.model agentDefaults.mcpServers.m.warpId"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// A text that changes far behind its beginning is shown where it does.
	long := func(end string) string {
		return fires + "schedule: {cron: '@daily'}}]\n---\n" + strings.Repeat("word ", 1000) + end
	}
	v := Diff(revision(t, "automations/a.md", long("old")), revision(t, "automations/a.md", long("new"))).Update[0].Values[0]
	if v.Key != "prompt" || !strings.HasSuffix(v.Before, `word old"`) || !strings.HasSuffix(v.After, `word new"`) || !strings.HasPrefix(v.After, "…") {
		t.Errorf("%+v", v)
	}
}
