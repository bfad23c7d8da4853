package harness

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"triphammer/server/run/event"
)

// trouble is something that keeps an agent from reaching its model.
type trouble struct {
	said func() *regexp.Regexp   // matches the words of a harness or a provider
	todo func(h *Harness) string // the meaning and the cure

	// passes tells whether the next attempt may succeed although nobody has cured anything.
	passes bool
}

// lazily compiles an expression when it is first needed, and not in every process.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// troubles are the known troubles. The first that matches counts.
var troubles = []trouble{
	{said: lazily(`(?i)credit balance|billing|insufficient[_ ]quota|payment required|\b402\b`), todo: func(*Harness) string {
		return "the account of this credential has no credit left: add some at the provider, or use another credential"
	}},
	{said: lazily(`(?i)\b429\b|rate.?limit|quota|resource.?exhausted|usage limit|overloaded|\b529\b`), passes: true, todo: func(*Harness) string {
		return "the provider's limit of requests or tokens is reached: start the run again later, run fewer at once, or have the limit raised"
	}},
	{said: lazily(`(?i)not logged in|\b401\b|\b403\b|unauthori[sz]ed|authenticat|(invalid|incorrect|missing)[a-z ]{0,12}api.?key|api.?key (is )?(not valid|missing|expired)|x-api-key|auth method|oauth token|permission_denied|permission_error`), todo: func(h *Harness) string {
		if len(h.Variables) == 0 {
			return "the agent has no credential that its provider accepts: grant it a secret that has the name of the variable in which it looks for one"
		}
		return fmt.Sprintf("%s has no credential that its provider accepts: store one with `triphammer secrets set NAME` and say harness.auth: {source: managedSecret, secretName: NAME}, or grant a secret named %s",
			h.Name, h.Variables[0])
	}},
	{said: lazily(`(?i)selected model|model([^.]|[.][^ ]){0,80}(not (found|exist|supported|available|known)|does not exist|may not exist|invalid|unknown)|(unknown|invalid|unsupported)[a-z ]{0,10} model|\bmodel_?not_?found|modelnotfound|\b404\b`), todo: func(h *Harness) string {
		return fmt.Sprintf("the provider does not offer this model to this credential: change the model (%s takes %s)", h.Name, h.models)
	}},
	{said: lazily(`(?i)no conversation found|session not found|invalid session|no saved session|no rollout found|did not find the conversation again`), todo: func(*Harness) string {
		return "the session of this conversation is gone: start a new run"
	}},
	{said: lazily(`(?i)not running in a trusted directory`), todo: func(*Harness) string {
		return "a setup command has replaced the .gemini/settings.json in the run's home: have it keep security.folderTrust.enabled: false, or say trustRepositorySettings: true in the environment"
	}},
	{said: lazily(`(?i)max session turns`), todo: func(*Harness) string {
		return "the budget of turns is used up (budget.turns of its environment or automation)"
	}},
	{said: lazily(`exec: .*not found|fork/exec .*no such file`), todo: func(*Harness) string {
		return "the program of the agent is not installed where runs look for programs: install it, or add its folder to PATH"
	}},
	{said: lazily(`(?i)unable to connect|connection (refused|error|failed)|connectionrefused|econnrefused|enotfound|error sending request|lookup address|name does not resolve|fetch failed|network error`), passes: true, todo: func(*Harness) string {
		return "the provider cannot be reached: check the network of the environment, and its variable for the provider's address if it sets one"
	}},
}

// maxSaid bounds the words of a harness about its failure, in characters.
const maxSaid = 400

// explain is the cure of a failure, and then the harness's own words. Without a known cure, it
// is only the words. final tells that every further attempt fails until somebody acts.
func (h *Harness) explain(said string) (text string, final bool) {
	if text, final = h.meaning(said); text == "" {
		text = event.Line(said, maxSaid)
	}
	return text, final
}

// meaning is explain, but empty if no cure is known.
func (h *Harness) meaning(said string) (text string, final bool) {
	words := event.Line(plain(said), maxSaid)
	for _, t := range troubles {
		if t.said().MatchString(words) {
			return fmt.Sprintf("%s. %s said: %s", t.todo(h), h.Name, strings.TrimPrefix(words, h.Name+": ")), !t.passes
		}
	}
	return "", false
}

// plain is the message in an error that is JSON, or else the text as it is.
func plain(said string) string {
	var object struct {
		Result, Message any
		Error           any
	}
	if !strings.HasPrefix(said, "{") || json.Unmarshal([]byte(said), &object) != nil {
		return said
	}
	inner, _ := object.Error.(map[string]any)
	for _, value := range []any{object.Result, object.Error, inner["message"], object.Message} {
		if words, is := value.(string); is && words != "" {
			return words
		}
	}
	return said
}

// failure is the result of a harness that says why it failed.
func (h *Harness) failure(said string, turns int64) event.Result {
	text, final := h.explain(said)
	return event.Result{Failed: true, Message: text, Final: final, Turns: turns}
}

// retrying makes the event that a harness tries again after its model's API has failed; why is
// the reason, and message is the shown text. If no try can succeed, the event stops the agent.
func (h *Harness) retrying(why, message string) []event.Event {
	text, final := h.explain(why)
	events := []event.Event{event.Status{Message: message, Trouble: text}}
	if final {
		events = append(events, event.Result{Failed: true, Message: text, Final: true, Hopeless: true})
	}
	return events
}

var triesAgain = lazily(`failed with status [45]\d\d`)

// Trouble says why the agent does not reach its model at the moment, and what to do, if the line
// of its standard error says that it tries again. Otherwise it is empty.
func (s *Start) Trouble(line string) (text string) {
	if s.harness != nil && triesAgain().MatchString(line) {
		text, _ = s.harness.explain(line)
	}
	return text
}

// Explain says what to do about an agent's last words before it failed, and then repeats the
// words. It is empty if no cure is known. final tells that every further attempt fails until
// somebody acts.
func (s *Start) Explain(said string) (text string, final bool) {
	if s.harness == nil || said == "" {
		return "", false
	}
	return s.harness.meaning(said)
}
