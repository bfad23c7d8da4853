package factory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"triphammer/factory/signature"
	"triphammer/schema"
)

// documentGenerator makes valid documents of the shapes of package schema, and
// mutants of them. It knows the rules in its own words, from
// the rule trees of factory/testdata/rules, and not from the JSON Schemas.
type documentGenerator struct {
	*rand.Rand
	full bool // every key is there, but where keys exclude each other
}

func (g *documentGenerator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *documentGenerator, from ...T) T { return from[g.IntN(len(from))] }

func (g *documentGenerator) document(d schemaDocument) any { return g.value(d.shape, d.name) }

func (g *documentGenerator) value(shape *schema.Shape, at string) any {
	if shape.Nullable && g.chance(10) {
		return nil
	}
	if special, ok := g.special(at); ok {
		return special
	}
	switch shape.Type {
	case schema.TypeString:
		switch {
		case len(shape.Enum) > 0:
			return pick(g, shape.Enum...)
		case !shape.NonEmpty && g.chance(10):
			return ""
		}
		return g.word()
	case schema.TypeBool:
		return g.chance(50)
	case schema.TypeInt:
		return 1 + g.IntN(9)
	case schema.TypeNumber:
		return g.number()
	case schema.TypeList:
		list := []any{}
		for i := range g.IntN(4) {
			item := g.value(shape.Elem, at+"[]")
			if text, ok := item.(string); ok && shape.Unique {
				item = fmt.Sprint(text, i)
			}
			list = append(list, item)
		}
		if len(list) == 0 && shape.NonEmpty {
			list = append(list, g.value(shape.Elem, at+"[]"))
		}
		return g.tidyList(list, at)
	case schema.TypeMap:
		m := object{}
		for i := range shape.Keys {
			if k := &shape.Keys[i]; k.Required || g.full || g.chance(40) {
				m[k.Name] = g.value(&k.Shape, at+"."+k.Name)
			}
		}
		g.tidy(m, at)
		return m
	case schema.TypeMapOf:
		m := object{}
		for range g.IntN(3) {
			m[pick(g, "A", "b_c", "Dd")] = g.value(shape.Elem, at+".*")
		}
		return m
	}
	return pick[any](g, "x", 1, nil, object{"a": []any{1, nil}}, []any{}, true)
}

func (g *documentGenerator) word() string {
	return pick(g, "alpha", "Beta gamma", " padded ", "é日本", "true", "0", "a/b", "x:y", "- #", "{}", "null")
}

// number is between 0 and 1, without a point if it is whole.
func (g *documentGenerator) number() any { return pick[any](g, 0, 1, 0.5, 0.25, 0.01, 0.99) }

// special is a value that follows rules of its own.
func (g *documentGenerator) special(at string) (any, bool) {
	key := at[strings.LastIndexByte(at, '.')+1:]
	switch {
	case at == "factory.alias":
		return pick(g, "", "  ", "a", "Café 9", " x_y.z- ", strings.Repeat("ß", 60)), true
	case at == "factory.integrations[].type":
		return pick(g, "slack", "Slack ", "linear", "JIRA", "microsoft-teams"), true
	case at == "automation.agent", at == "benchmark_suite.agent", at == "scorer.agents[]", at == "benchmark_suite.configurations[].agents[].agent":
		return pick(g, "lead", " lead"), true
	case at == "scorer.agents":
		return []any{"lead"}, true
	case at == "automation.triggers[]":
		return g.trigger(), true
	case at == "webhook.signatureScheme":
		return pick(g, signature.Names()...), true
	case at == "webhook.deliveryIdHeader":
		return pick(g, "X-Id", "x", "X_y.z~1", strings.Repeat("h", 100)), true
	case at == "runner":
		return g.runner(), true
	case at == "scorer.samplingRate":
		return pick[any](g, 0.01, 1, 25, 100, 33.33), true
	case at == "benchmark_suite.tasks":
		return pick(g, []any{}, []any{"one"}, []any{"two", "one"}, []any{" one "}), true
	case key == "startingRepoRefs[]":
		return pick(g, "github.com:", "gitlab.com:group/") + "a/b@" + strings.Repeat(pick(g, "0", "aF"), 40)[:40], true
	case at == "environment.repositories[].ref":
		return pick(g, "main", "v1.2", " x"), true
	case at == "environment.repositories[].path":
		return pick(g, "a", "a/b", ".a", "a/..b", "a b"), true
	case at == "environment.repositories[].url":
		return pick(g, "https://git.example.com/x.git", "git@host:x", "/srv/x", "https://user@host/x"), true
	case at == "environment.network":
		return pick[any](g, "on", "off", []any{"a.example"}, []any{"*.a.example:443", "b"}), true
	case strings.HasPrefix(at, "environment.budget."), key == "timeoutMinutes", key == "idleMinutes":
		return pick[any](g, 1, 10080, 5), true
	case at == "tests[].webhook":
		return "hook", true
	case at == "tests[].expect":
		return pick(g, []any{}, []any{"hello"}), true
	case at == "tests[].payloadFile":
		return pick(g, "payload.json", "./payload.json", "/payload.json"), true
	}
	return nil, false
}

// tidy makes the keys of a mapping go together.
func (g *documentGenerator) tidy(m object, at string) {
	if model, has := m["model"]; has && model != nil && m["harness"] != nil {
		delete(m, pick(g, "model", "harness"))
	}
	if _, has := m["workerHost"]; has && (at == "agent" || at == "automation") {
		if harness, _ := m["harness"].(object); harness != nil {
			if auth, _ := harness["auth"].(object); auth != nil && auth["source"] == "workerEnvironment" {
				m["workerHost"] = "h"
			}
		}
	}
	if list, is := m["repositories"].([]any); is && at == "factory" && len(list) == 0 {
		m["codeForges"] = []any{"NONE"}
	}
	switch {
	case strings.HasSuffix(at, ".harness"):
		g.tidyHarness(m)
	case at == "factory.agentDefaults":
		if harness, _ := m["harness"].(object); harness != nil {
			if auth, _ := harness["auth"].(object); auth != nil && auth["source"] == "workerEnvironment" {
				m["workerHost"] = "h"
			}
		}
	case at == "webhook" && m["authMode"] == "signature":
		m["signatureScheme"] = pick(g, signature.Names()...)
		delete(m, "signature")
		switch {
		case g.chance(50):
			m["signatureScheme"], m["signature"] = "hmac", g.signature()
		case slices.Contains([]any{"hmac", "ed25519", "token_header"}, m["signatureScheme"]):
			m["signature"] = object{"header": "X-Token"}
		}
	case at == "webhook":
		delete(m, "signatureScheme")
		delete(m, "signature")
	case at == "environment.repositories[]":
		if g.chance(50) {
			delete(m, "owner")
			delete(m, "name")
			m["url"], _ = g.special(at + ".url")
		} else {
			delete(m, "url")
			m["owner"], m["name"] = "a", g.word()
		}
	case at == "tests[]":
		if delete(m, "payload"); m["payloadFile"] == nil {
			m["payload"] = pick[any](g, nil, 1, object{"a": 1})
		}
	case at == "scorer":
		m["passingScore"] = pick[any](g, 0.5, 1, 0.1)
		m["labels"] = []any{object{"value": "good", "score": 1}, object{"value": "bad", "score": 0}}
	}
}

func (g *documentGenerator) tidyHarness(m object) {
	sets := m["type"] != nil || m["model"] != nil
	for _, key := range []string{"reasoningLevel", "auth"} {
		_, has := m[key]
		sets = sets || has
	}
	if !sets {
		m["type"] = "claude"
	}
	if auth, _ := m["auth"].(object); auth != nil {
		if auth["source"] == "managedSecret" {
			auth["secretName"] = "KEY"
		} else {
			delete(auth, "secretName")
		}
	}
	if m["type"] == "oz" {
		for _, key := range []string{"auth", "reasoningLevel"} {
			if _, has := m[key]; has {
				m[key] = nil
			}
		}
	}
}

// tidyList makes the items of a list go together.
func (g *documentGenerator) tidyList(list []any, at string) []any {
	baseline := false
	for i, item := range list {
		m, _ := item.(object)
		switch at {
		case "factory.repositories", "scorer.labels", "benchmark_suite.configurations":
			for _, key := range []string{"name", "value"} {
				if text, ok := m[key].(string); ok {
					m[key] = fmt.Sprint(text, i)
				}
			}
			if m["role"] == "baseline" && baseline {
				delete(m, "role")
			}
			baseline = baseline || m["role"] == "baseline"
		case "automation.triggers":
			if s, _ := m["schedule"].(object); s != nil {
				s["name"] = fmt.Sprint("s", i)
			}
		}
	}
	if at == "factory.integrations" && len(list) > 1 {
		return []any{object{"type": "slack"}, object{"type": pick(g, "linear", " Jira")}}
	}
	return list
}

// signature is how a sender of the scheme hmac signs.
func (g *documentGenerator) signature() any {
	return pick(g,
		object{"header": "X-Sign", "algorithm": pick(g, "sha1", "sha256", "sha512"), "encoding": pick(g, "hex", "base64", "base64url"), "prefix": pick(g, "v1=", "HMAC ")},
		object{"header": "x-sign", "secretEncoding": pick(g, "text", "base64", "hex"), "template": pick(g, "{body}", "{method}\n{url}\n{h:X-Nonce}{body}")},
		object{
			"header": "X-Sign", "separator": pick(g, ",", ";", " "), "prefix": "v1=", "timestampPrefix": "t=", "template": "{ts}.{body}",
			"timestampFormat": pick(g, "seconds", "milliseconds", "rfc3339"), "toleranceSeconds": pick(g, 0, 300, 604800),
		},
		object{"header": "X-Sign", "idHeader": "X-Id", "timestampHeader": "X-At", "template": "{id}.{ts}.{body}"},
	)
}

func (g *documentGenerator) runner() any {
	r := object{"platform": object{"linux": object{"dockerImage": g.word()}}}
	platform := r["platform"].(object)
	if g.chance(50) {
		platform = object{"os": "macos"}
		if r["platform"] = platform; g.chance(50) {
			platform["mac"] = object{"version": pick(g, "14", "15", "26", "27")}
		}
		if g.chance(50) {
			cpus := pick(g, slices.Sorted(maps.Keys(macShapes))...)
			r["instanceShape"] = object{"vcpus": cpus, "memoryGb": pick(g, macShapes[cpus]...)}
		}
		if g.chance(50) {
			platform["arch"] = "aarch64"
		}
		return r
	}
	if g.chance(50) {
		platform["os"] = "linux"
	}
	if g.chance(50) {
		platform["arch"] = pick(g, "x86_64", "aarch64")
	}
	if g.chance(50) {
		r["instanceShape"] = object{"vcpus": 1 << g.IntN(12), "memoryGb": 1 << g.IntN(12)}
	}
	if g.chance(50) {
		r["setupCommands"] = []any{"make", ""}
	}
	return r
}

func (g *documentGenerator) trigger() any {
	provider := pick(g, providers()...)
	if g.chance(40) {
		provider = "webhook"
	}
	event := pick(g, eventsOf(provider)...)
	t := object{"provider": provider, "event": event}
	filter := object{}
	switch provider {
	case "webhook":
		if g.chance(70) {
			filter["webhooks"] = pick[any](g, []any{"hook"}, object{"in": []any{" hook"}})
		}
		if len(filter) == 0 || g.chance(30) {
			filter["webhook_ids"] = []any{"whk_1"}
		}
		if g.chance(70) {
			filter["payload"] = g.payload(1)
		}
	case "schedule":
		if g.chance(50) {
			t["schedule"] = object{"cron": pick(g, "@daily", "@every 1h30m", "0 6 * * 1-5", " */5 ? 1,2 JAN-MAR sun ")}
			return t
		}
		filter["schedule_ids"] = []any{"s1", "s2"}
	default:
		g.filter(filter, provider, catalogue[provider][event])
		if g.chance(20) {
			t["schedule"] = nil
		}
		if g.chance(20) {
			t["filter"] = nil
			return t
		}
	}
	t["filter"] = filter
	return t
}

func (g *documentGenerator) filter(filter object, provider string, keys []string) {
	for _, key := range keys {
		if g.chance(50) {
			continue
		}
		values := []any{"a", "B c"}
		switch key {
		case "pr_numbers":
			values = []any{1, 1 << 40}
		case "conclusions":
			values = []any{pick(g, conclusions...), "Success"}
		}
		name, plain := key, false
		for alias, canonical := range aliases[provider] {
			if canonical == key && g.chance(50) {
				name, plain = alias, provider != "github"
			}
		}
		switch {
		case g.chance(10):
			filter[name] = nil
		case plain || g.chance(50):
			filter[name] = values
		default:
			filter[name] = pick(g, object{}, object{"in": values}, object{"not_in": values}, object{"in": values[:1], "not_in": []any{}})
		}
	}
}

func (g *documentGenerator) payload(depth int) any {
	p := object{}
	for _, key := range []string{"action", "a.b", "Exists", "x"} {
		if g.chance(50) {
			continue
		}
		values := []any{pick[any](g, "x", 1, 1.5, true, nil), "y"}
		switch n := g.IntN(6); {
		case n == 0 && depth < 9:
			p[key] = g.payload(depth + 1)
		case n == 1:
			p[key] = object{"exists": g.chance(50)}
		case n == 2:
			p[key] = object{"in": values, "exists": true}
		case n == 3:
			p[key] = object{"not_in": values, "exists": g.chance(50)}
		case n == 4:
			p[key] = object{"in": values, "not_in": []any{"z"}}
		default:
			p[key] = values
		}
	}
	return p
}

func clone(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = clone(value)
		}
		return out
	}
	return v
}

// slot is a place in a document.
type slot struct {
	at     string
	value  any
	set    func(any)
	remove func()
}

// slotsOf are all places of a document, in a fixed order.
func slotsOf(at string, v any, set func(any), remove func()) []slot {
	slots := []slot{{at, v, set, remove}}
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			slots = append(slots, slotsOf(at+"."+key, v[key], func(n any) { v[key] = n }, func() { delete(v, key) })...)
		}
	case []any:
		for i, item := range v {
			slots = append(slots, slotsOf(at+"[]", item, func(n any) { v[i] = n }, func() { set(slices.Delete(v, i, i+1)) })...)
		}
	}
	return slots
}

// junk are values that are seldom what is meant.
var junk = []any{
	nil, "", " ", "\u00a0", "\u0085", "\ufeff", "x", "null", true, false, 0, 1, -1, 1.5, 21, -0.5, 1e20,
	[]any{},
	[]any{"x"},
	[]any{""},
	[]any{nil},
	[]any{1},
	[]any{object{}},
	object{},
	object{"in": []any{"x"}},
	object{"not_in": []any{1}},
	object{"exists": false},
	object{"exists": "x"},
	object{"x": "y"},
	object{"in": []any{}},
	object{"in": nil},
	"-x", "../x", "a//b", "a/./b", "/a", "..", "a\u0000b", "CRON_TZ=UTC 0 0 * * *", "0 0 * *", "@daily x", "@", "lınear",
	"2026-01-02", "oz", "signature", "macos", "linux", "workerEnvironment", "managedSecret", "baseline", "github", "webhook", "schedule", "received", "push",
	[]any{"a", "a"},
	[]any{" a", "a"},
	"[x]", strings.Repeat("a", 61), strings.Repeat("b", 101),
}

// mutate changes a document in one to three places; another makes documents of
// its kind.
func (g *documentGenerator) mutate(doc any, another func() any) any {
	for range 1 + g.IntN(3) {
		slots := slotsOf("", doc, func(n any) { doc = n }, func() {})
		g.mutateSlot(pick(g, slots...), another)
	}
	return doc
}

func (g *documentGenerator) mutateSlot(s slot, another func() any) {
	switch g.IntN(8) {
	case 0:
		s.remove()
		return
	case 1, 2:
		s.set(clone(pick(g, junk...)))
		return
	}
	switch v := s.value.(type) {
	case object:
		g.mutateMap(s, v, another)
	case []any:
		g.mutateList(s, v)
	case string:
		s.set(pick(g, v+" ", "\t"+v, strings.ToUpper(v), strings.ToLower(v), v+"x", v+strings.Repeat("é", 60), "-"+v))
	case int:
		s.set(pick[any](g, v+1, v-1, -v, 2*v, float64(v)+0.5, fmt.Sprint(v), 100+v))
	case int64:
		s.set(pick[any](g, v+1, v-1, -v, 2*v))
	case float64:
		s.set(pick[any](g, v/1000+0.0001, v+100.5, -v-0.5))
	default:
		s.set(clone(pick(g, junk...)))
	}
}

func (g *documentGenerator) mutateMap(s slot, v object, another func() any) {
	if g.chance(30) {
		v[pick(g, "unknown", "in", "not_in", "exists", "", "x-y", "TRIPHAMMER_X", "1a")] = clone(pick(g, junk...))
		return
	}
	// What another document has there, so that keys meet which exclude each other.
	for _, other := range slotsOf("", another(), func(any) {}, func() {}) {
		m, ok := other.value.(object)
		if !ok || other.at != s.at || len(m) == 0 {
			continue
		}
		key := pick(g, slices.Sorted(maps.Keys(m))...)
		v[key] = m[key]
		if g.chance(50) {
			return
		}
	}
}

func (g *documentGenerator) mutateList(s slot, v []any) {
	switch {
	case len(v) == 0:
		s.set([]any{clone(pick(g, junk...))})
	case g.chance(20):
		s.set([]any{})
	case g.chance(50):
		s.set(append(slices.Clone(v), clone(v[0])))
	default:
		long := []any{}
		for i := range pick(g, 6, 7, 20, 21, 32, 33) {
			item := clone(v[i%len(v)])
			switch item := item.(type) {
			case string:
				long = append(long, fmt.Sprint(item, i))
				continue
			case object:
				for _, key := range []string{"name", "value"} {
					if text, ok := item[key].(string); ok {
						item[key] = fmt.Sprint(text, i)
					}
				}
			}
			long = append(long, item)
		}
		s.set(long)
	}
}
