package signature

import (
	"cmp"
	"fmt"
	"strings"
)

// Guide says step by step how to make a sender deliver here. In its texts, **text** is a name
// on the sender's own pages, and the reader copies `text`. {url} stands for the URL of the
// webhook, and {secret} for the name of its secret.
type Guide struct {
	Steps  []string
	First  string // what the sender sends before the first event, and how the server reacts; empty: not known
	Source string // the sender's own page about its webhooks; empty: there is none
}

// Fill puts a URL and the name of a secret into the texts.
func (g Guide) Fill(url, secret string) Guide {
	put := strings.NewReplacer("{url}", "`"+url+"`", "{secret}", "`"+secret+"`")
	filled := Guide{First: put.Replace(g.First), Source: g.Source}
	for _, step := range g.Steps {
		filled.Steps = append(filled.Steps, put.Replace(step))
	}
	return filled
}

// TokenGuide is the guide of the mode token.
func TokenGuide() Guide {
	return Guide{Steps: []string{
		"Make the sender post to {url}, with the content type `application/json`.",
		"Give it the header `Authorization: Bearer` followed by a space and the value of {secret}.",
		"If it can name its events in a header, state that header in `deliveryIdHeader` of the webhook's file: then a repetition is known as one. Without it, equal bodies count as one delivery.",
	}}
}

// URLTokenGuide is the guide of the mode url_token.
func URLTokenGuide() Guide {
	return Guide{Steps: []string{
		"Make the sender post to {url}, with the value of {secret} in place of `{token}`, and with the content type `application/json`.",
		"Whoever sees this URL can send: keep it out of logs, tickets and screenshots.",
	}}
}

// SocketGuide is the guide of a webhook of Slack that opens a connection (SPEC 29.1). {secret} stands
// for the name of the secret with the app-level token.
func SocketGuide() Guide {
	return Guide{
		Steps: []string{
			"On the page of your app, open **Socket Mode**, and switch **Enable Socket Mode** on.",
			"Open **Basic Information**, **App-Level Tokens**, **Generate Token and Scopes**, and add the scope `connections:write`. Set {secret} to the token, which begins with `xapp-`.",
			"Open **Event Subscriptions**, and switch **Enable Events** on. Slack asks for no URL.",
			"Under **Subscribe to bot events**, add what your automations ask for, save, and reinstall the app if Slack asks for it.",
			"For buttons that approve what waits for a person, open **Interactivity & Shortcuts**, and switch **Interactivity** on. Slack asks for no URL.",
		},
		First:  "Slack greets the connection. It is no delivery.",
		Source: "https://docs.slack.dev/apis/events-api/using-socket-mode",
	}
}

// Guide returns the guide that is written for the scheme, or else makes a guide from the row.
func (s *Scheme) Guide() Guide {
	var g Guide
	if s.written != nil {
		g = *s.written
	} else {
		g.Steps = s.derivedSteps()
	}
	g.Source = cmp.Or(g.Source, s.Source)
	if g.First == "" {
		for _, ask := range s.Asks() {
			g.First += strings.ToUpper(ask[:1]) + ask[1:] + ". "
		}
		if g.First = strings.TrimSpace(g.First); g.First != "" && s.Handshake.Method == "POST" {
			g.First += " This server answers it as " + s.Provider + " wants it."
		}
	}
	return g
}

func (s *Scheme) derivedSteps() []string {
	steps := []string{s.Setup, "The URL is {url}."}
	switch {
	case s.asymmetric():
		steps = append(steps, fmt.Sprintf("Set {secret} to the sender's public key (%s). It is not secret, but somebody who can change it can send deliveries.", s.Key))
	case s.SecretIsYours():
		steps = append(steps, "Enter the value of {secret} there. Nobody can read it here again; if it is lost, rotate it.")
	default:
		steps = append(steps, "Set {secret} to the secret that the sender shows"+map[KeyEncoding]string{KeyHex: ", in hex", KeyBase64: ", in base64"}[s.Key]+".")
	}
	if s.FormAdvice != "" {
		return append(steps, strings.ToUpper(s.FormAdvice[:1])+s.FormAdvice[1:]+".")
	}
	return append(steps, "If you can choose a content type there, choose `application/json`.")
}

// SecretIsYours tells whether the sender takes a secret that the receiver makes. If not, the
// sender makes the secret.
func (s *Scheme) SecretIsYours() bool {
	rest, as := strings.CutPrefix(s.Setup, "As `")
	if like, _, _ := strings.Cut(rest, "`"); as {
		if other, ok := Lookup(like); ok {
			return other.SecretIsYours()
		}
	}
	// A sender that implements Standard Webhooks by itself takes a secret (SPEC C5.2).
	return s.Generic() && !s.asymmetric() || s.Name == "standard_webhooks" || strings.Contains(s.Setup, "of your choice")
}
