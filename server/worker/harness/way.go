package harness

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/gateway/wire"
)

// way is how an agent reaches its model by the gateway of its run, which has the key (SPEC 25.1).
type way struct {
	provider string
	keys     []string // variables with the key, in the order in which the agent looks for it
	bearer   string   // one of them, whose key goes into Authorization
	base     string   // the variable with the address of the provider; empty: the harness finds it in Start.Services
	json     string   // if set, base holds a JSON object that has the address under this key
	login    func(key string) bool
	never    string // why this run cannot go this way; empty: it can
}

// inSettings tells whether the agent takes the address from settings of opencode.
func (w way) inSettings() bool { return w.base == "" }

// defaultAddress is the address of a provider that the operator has not set; empty: there is none.
func defaultAddress(provider string) string {
	return map[string]string{
		"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1",
		"gemini": "https://generativelanguage.googleapis.com", "openrouter": "https://openrouter.ai/api/v1",
	}[provider]
}

// CheckProvider says why the gateway cannot carry a provider at an address; nil: it can. The error is
// for the operator.
func CheckProvider(provider, address string) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return err
	case strings.HasSuffix(u.Hostname(), ".amazonaws.com") && !strings.Contains(u.Path, "/openai/"):
		return errors.New("the API of Bedrock signs each request, which a key in a header does not do: use its address for OpenAI's format, https://bedrock-runtime.REGION.amazonaws.com/openai/v1, with a key of Bedrock, under a name of your own")
	case strings.HasSuffix(u.Hostname(), "aiplatform.googleapis.com"):
		return errors.New("the API of Vertex takes tokens of an hour, which nobody renews here: use keys of the Gemini API")
	case strings.Contains(u.Hostname(), ".openai.azure.com") && wire.Named(provider) == wire.Named("anthropic"):
		return errors.New("on Azure, models of Anthropic are at https://RESOURCE.services.ai.azure.com/anthropic")
	}
	return nil
}

func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Fragment != "" {
		return errors.New("it is no address such as https://models.example.com/v1, without a user")
	}
	return nil
}

// keyHeader is the header that has a key.
func (w way) keyHeader(u *url.URL, variable, key string) map[string]secret.Value {
	f := wire.Named(w.provider)
	name, value := f.Keys[0], f.KeyPrefix+key
	switch {
	case w.bearer != "" && variable == w.bearer:
		name, value = "Authorization", "Bearer "+key
	case strings.HasSuffix(u.Hostname(), ".azure.com") && f.Name != "anthropic":
		name, value = "Api-Key", key
	}
	return map[string]secret.Value{http.CanonicalHeaderKey(name): secret.New(value)}
}

// outward takes the key of the model out of a request, if the gateway of the run can carry the model.
// Then the request has a token in its place, and the variables have the address of the gateway. It
// returns the ways of the harness.
func (s *Start) outward(r *Request) []way {
	var ways []way
	if s.harness.ways != nil {
		ways = s.harness.ways(*r, s)
	}
	took := false
	for i := range ways {
		took = ways[i].take(r, s) || took
	}
	if !took && !r.Auth.IsZero() && r.AuthName != "" {
		s.Secrets[r.AuthName] = r.Auth // in which an agent may look for it
	}
	return ways
}

// take makes the service of a way. It notes in the way why it cannot.
func (w *way) take(r *Request, s *Start) bool {
	key, variable, from := r.Auth, "", r.AuthName
	if key.IsZero() {
		at := slices.IndexFunc(w.keys, func(name string) bool { return slices.Contains(r.Worker, name) })
		if at < 0 {
			return false
		}
		variable, from = w.keys[at], ""
		key = s.Secrets[variable]
	}
	if w.login != nil && w.login(strings.TrimSpace(key.Reveal())) {
		w.never = "it is a login of a subscription"
	}
	if w.never != "" {
		return false
	}
	address, settings := cmp.Or(r.Providers[w.provider], defaultAddress(w.provider)), make(map[string]any)
	if set := s.lookup(w.base); w.base != "" && set != "" {
		if w.json == "" {
			address = set
		} else if err := json.Unmarshal([]byte(set), &settings); err != nil {
			w.never = w.base + " holds no JSON object"
			return false
		} else if text, is := settings[w.json].(string); is {
			address = text
		}
	}
	u, err := url.Parse(address)
	if err == nil {
		err = CheckProvider(w.provider, address)
	}
	if err != nil {
		w.never = fmt.Sprintf("%s: %v", cmp.Or(w.base, "its address"), err)
		return false
	}
	to := task.Service{
		Name: w.provider, Token: rand.Text(), URL: address, Secret: from, Provider: w.provider, Extras: r.Extras, Models: r.Models,
		Header: w.keyHeader(u, variable, strings.TrimSpace(key.Reveal())),
	}
	s.Services = append(s.Services, to)
	for _, name := range w.keys {
		if slices.Contains(r.Worker, name) {
			delete(s.Secrets, name)
		}
	}
	r.Auth = secret.New(to.Token)
	s.Secrets[cmp.Or(variable, w.keys[0])] = r.Auth
	if variable == "" && w.bearer != "" {
		delete(s.Secrets, w.bearer) // the agent would prefer it
	}
	if w.base == "" {
		return true
	}
	// The address is a secret, too: who has it reaches the model.
	delete(s.Env, w.base)
	s.Secrets[w.base] = secret.New(to.Address())
	if w.json != "" {
		settings[w.json] = to.Address()
		data, _ := json.Marshal(settings) // it was JSON
		s.Secrets[w.base] = secret.New(string(data))
	}
	return true
}

// hasWay tells whether the model is reached by the gateway.
func (s *Start) hasWay() bool {
	return slices.ContainsFunc(s.Services, func(to task.Service) bool { return to.Provider != "" })
}

// note says for each credential of the model whether it is inside.
func (s *Start) note(r Request, ways []way) {
	tokens := make(map[string]bool)
	for _, to := range s.Services {
		if tokens[to.Token] = true; to.Provider != "" {
			from := "a variable of the worker"
			if to.Secret != "" {
				from = "the secret " + to.Secret
			}
			s.ModelKey = "outside, at the gateway"
			s.Notes = append(s.Notes, fmt.Sprintf("the key for %s (%s) is outside this run, at its gateway", to.Provider, from))
		}
	}
	var inside []string
	for name, v := range s.Secrets {
		if (name == r.AuthName || slices.Contains(s.harness.Variables, name) || name == "OPENCODE_AUTH_CONTENT") && !tokens[v.Reveal()] {
			inside = append(inside, name)
		}
	}
	if len(inside) == 0 {
		return
	}
	slices.Sort(inside)
	why := "the gateway does not carry this agent or this model"
	switch i := slices.IndexFunc(ways, func(w way) bool { return w.never != "" }); {
	case i >= 0:
		why = ways[i].never
	case s.hasWay() || len(ways) > 0:
		why = "it is granted as a variable: name it in harness.auth alone, and the key stays outside"
	}
	s.ModelKey = fmt.Sprintf("inside: %s (%s)", strings.Join(inside, ", "), why)
	s.Notes = append(s.Notes, fmt.Sprintf("a key of the model is inside this run, where its agent can read it: %s (%s)", strings.Join(inside, ", "), why))
	if len(r.Models) > 0 {
		s.Notes = append(s.Notes, "warning: models does not hold the agent, which can ask for every model with the key inside")
	}
}

// remote makes the servers with secrets in their headers services of the gateway, which adds the headers.
func (s *Start) remote(r Request) []factory.MCPServer {
	all := slices.Clone(r.MCPServers)
	for i, m := range all {
		if m.URL == "" || m.URL == task.OutputsURL {
			continue
		}
		value := func(name string) (v secret.Value, ok bool) {
			if v, ok = s.Secrets[name]; !ok && slices.Contains(m.Outside, name) {
				v, ok = r.Outside[name]
			}
			return v, ok
		}
		isSecret := func(name string) bool { _, ok := value(name); return ok }
		added := make(map[string]secret.Value) // also those without a secret: of a run, the gateway passes on no Authorization
		var secrets []string
		for header, text := range m.Headers {
			secrets = append(secrets, slices.DeleteFunc(names(text), func(name string) bool { return !isSecret(name) })...)
			added[header] = secret.New(strings.TrimSpace(rewrite(text, func(name string) string {
				if v, ok := value(name); ok {
					return v.Reveal()
				}
				return s.Env[name]
			})))
		}
		address := rewrite(m.URL, func(name string) string { return s.Env[name] })
		if len(secrets) == 0 || slices.ContainsFunc(names(m.URL), isSecret) || checkAddress(address) != nil {
			continue
		}
		slices.Sort(secrets)
		to := task.Service{
			Name: "mcp-" + url.PathEscape(m.Name), Token: rand.Text(), URL: address, Secret: strings.Join(slices.Compact(secrets), ", "), Header: added,
			Methods: []string{http.MethodGet, http.MethodPost, http.MethodDelete}, Paths: []string{""},
		}
		s.Services = append(s.Services, to)
		m.URL, m.Headers = "${"+s.derived(to.Address())+"}", nil
		all[i] = m
	}
	return all
}
