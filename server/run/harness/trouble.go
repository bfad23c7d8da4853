package harness

import (
	"fmt"
	"regexp"
	"strings"
)

// troubles are what keeps agents from reaching their model, by what harnesses and providers
// say of it. The first that matches is told with what to do about it.
var troubles = []struct {
	said *regexp.Regexp
	todo func(h *Harness) string
}{
	{regexp.MustCompile(`(?i)credit balance|billing|insufficient[_ ]quota|payment required|\b402\b`), func(*Harness) string {
		return "the account of this credential has no credit left: add some at the provider, or use another credential"
	}},
	{regexp.MustCompile(`(?i)\b429\b|rate.?limit|quota|resource.?exhausted|usage limit|overloaded|\b529\b`), func(*Harness) string {
		return "the provider's limit of requests or tokens is reached: start the run again later, run fewer at once, or have the limit raised"
	}},
	{regexp.MustCompile(`(?i)not logged in|\b401\b|\b403\b|unauthori[sz]ed|authenticat|(invalid|incorrect|missing)[a-z ]{0,12}api.?key|api.?key (is )?(not valid|missing|expired)|x-api-key|auth method|oauth token|permission.?denied`), func(h *Harness) string {
		if len(h.Variables) == 0 {
			return "the agent has no credential that its provider accepts: grant it a secret that has the name of the variable in which it looks for one"
		}
		return fmt.Sprintf("%s has no credential that its provider accepts: store one with `triphammer secrets set NAME` and say harness.auth: {source: managedSecret, secretName: NAME}, or grant a secret named %s",
			h.Name, h.Variables[0])
	}},
	{regexp.MustCompile(`(?i)selected model|model[^.]{0,80}(not (found|exist|supported|available|known)|does not exist|may not exist|invalid|unknown)|(unknown|invalid|unsupported)[a-z ]{0,10} model|\bmodel_?not_?found|modelnotfound|\b404\b`), func(h *Harness) string {
		return fmt.Sprintf("the provider does not offer this model to this credential: change the model (%s takes %s)", h.Name, h.models)
	}},
	{regexp.MustCompile(`(?i)no conversation found|session not found|invalid session|no saved session|no rollout found`), func(*Harness) string {
		return "the session of this conversation is gone: start a new run"
	}},
	{regexp.MustCompile(`(?i)not running in a trusted directory`), func(*Harness) string {
		return "a setup command has replaced the .gemini/settings.json in the run's home: have it keep security.folderTrust.enabled: false, or say trustRepositorySettings: true in the environment"
	}},
	{regexp.MustCompile(`exec: .*not found`), func(h *Harness) string {
		return h.Name + " is not installed where runs look for programs: install it, or add its folder to PATH"
	}},
	{regexp.MustCompile(`(?i)unable to connect|connection (refused|error|failed)|connectionrefused|econnrefused|enotfound|error sending request|lookup address|name does not resolve|fetch failed|network error`), func(*Harness) string {
		return "the provider cannot be reached: check the network of the environment, and its variable for the provider's address if it sets one"
	}},
}

// explain is what a harness says of its failure, with what to do about it if that is known.
func (h *Harness) explain(said string) string {
	said = strings.TrimSpace(said)
	for _, t := range troubles {
		if t.said.MatchString(said) {
			return said + " — " + t.todo(h)
		}
	}
	return said
}

// Explain is what the agent said last before it failed, with what to do about it if that
// is known.
func (s *Start) Explain(said string) string {
	if s.harness == nil {
		return said
	}
	return s.harness.explain(said)
}
