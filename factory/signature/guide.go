package signature

import (
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
		"Let the sender post to {url}, with the content type `application/json`.",
		"Give it the header `Authorization: Bearer` followed by a space and the value of {secret}.",
		"If it can name its events in a header, state that header in `deliveryIdHeader` of the webhook's file: then a repetition is known as one. Without it, equal bodies count as one delivery.",
	}}
}

// URLTokenGuide is the guide of the mode url_token.
func URLTokenGuide() Guide {
	return Guide{Steps: []string{
		"Let the sender post to {url}, with the value of {secret} in place of `{token}`, and with the content type `application/json`.",
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
		},
		First:  "Slack greets the connection. It is no delivery.",
		Source: "https://docs.slack.dev/apis/events-api/using-socket-mode",
	}
}

// Guide returns the guide that is written for the scheme, or else makes a guide from the row.
func (s *Scheme) Guide() Guide {
	g, written := guides[s.Name]
	if !written {
		g.Steps = s.derivedSteps()
	}
	if g.Source == "" {
		g.Source = s.Source
	}
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
	return append(steps, "If the sender lets you choose a content type, choose `application/json`.")
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

// guides are the guides of common senders. Names of menus and fields are the senders' own,
// from the page in Source, or else in the scheme's Source.
var guides = map[string]Guide{
	"github": {
		Steps: []string{
			"In the repository or the organisation, open **Settings**, **Webhooks**, **Add webhook**.",
			"**Payload URL** is {url}. **Content type** is `application/json`; the other one is a form, which is refused.",
			"**Secret** is the value of {secret}.",
			"Choose **Let me select individual events**, and the events that your automations ask for.",
			"Leave **Active** on, and press **Add webhook**.",
		},
		First:  "GitHub sends the event `ping` at once. It is accepted, and starts nothing unless an automation asks for it.",
		Source: "https://docs.github.com/webhooks/using-webhooks/creating-webhooks",
	},
	"gitlab": {
		Steps: []string{
			"In the project or the group, open **Settings**, **Webhooks**, **Add new webhook**.",
			"**URL** is {url}.",
			"**Secret token** is the value of {secret}.",
			"Under **Trigger**, choose the events that your automations ask for, and save.",
			"Press **Test** and choose an event: it is a delivery like any other.",
		},
	},
	"gitlab_signed": {
		Steps: []string{
			"In the project or the group, open **Settings**, **Webhooks**, **Add new webhook**.",
			"**URL** is {url}.",
			"Let GitLab make a **signing token**, and set {secret} to it. Versions without it only send a secret token: use the scheme `gitlab` for them.",
			"Under **Trigger**, choose the events that your automations ask for, and save.",
			"Press **Test** and choose an event: it is a delivery like any other.",
		},
	},
	"azure_devops": {
		Steps: []string{
			"In the project, open **Project settings**, **Service hooks**, **Create subscription**, and choose **Web Hooks**.",
			"Choose the event that your automations ask for, and its filters. Each event is a subscription of its own.",
			"**URL** is {url}.",
			"**Basic authentication username** and **password** are the two parts of {secret}, whose value is `user:password`.",
			"Leave **Resource details to send** at **All**. Press **Test**: it is a delivery like any other. Then press **Finish**.",
		},
		Source: "https://learn.microsoft.com/azure/devops/service-hooks/services/webhooks",
	},
	"bitbucket": {
		Steps: []string{
			"Open **Repository settings**, **Webhooks**, **Add webhook**.",
			"**URL** is {url}.",
			"**Secret** is the value of {secret}.",
			"Under **Triggers**, the default is a repository push. Choose from the full list what your automations ask for, and save.",
		},
	},
	"gitea": {
		Steps: []string{
			"In the repository or the organisation, open **Settings**, **Webhooks**, **Add Webhook**, **Gitea**.",
			"**Target URL** is {url}, **POST Content Type** is `application/json`.",
			"**Secret** is the value of {secret}.",
			"Under **Trigger On**, choose the events that your automations ask for, and add it.",
			"On the webhook's page, **Test Delivery** sends a push: it is a delivery like any other.",
		},
	},
	"forgejo": {
		Steps: []string{
			"In the repository or the organisation, open **Settings**, **Webhooks**, **Add webhook**, **Forgejo**.",
			"**Target URL** is {url}, **POST content type** is `application/json`.",
			"**Secret** is the value of {secret}.",
			"Under **Trigger on**, choose the events that your automations ask for, and add it.",
			"On the webhook's page, **Test delivery** sends a push: it is a delivery like any other.",
		},
	},
	"sentry": {
		Steps: []string{
			"Open **Settings**, **Developer Settings**, **Custom Integrations**, **Create New Integration**, **Internal Integration**.",
			"**Webhook URL** is {url}.",
			"To have alert rules send here, switch **Alert Rule Action** on (some versions call it **Alert Action**). For other events, choose them under **Webhooks**; each needs a permission to read it.",
			"Save, and set {secret} to the **Client Secret** under **Credentials**: copy it now, because Sentry shows it only for a short time.",
			"In an alert rule, choose the integration as an action.",
		},
	},
	"stripe": {
		Steps: []string{
			"Open the **Webhooks** tab of **Workbench**, and press **Create new destination**.",
			"Select the event types that your automations ask for, **Continue**, and then **Webhook**.",
			"**Endpoint URL** is {url}. Press **Create destination**.",
			"Set {secret} to the signing secret of the destination: all of it, with `whsec_`.",
			"Test mode and live mode have destinations and secrets of their own: make a webhook for each.",
		},
		Source: "https://docs.stripe.com/workbench/event-destinations",
	},
	"slack": {
		Steps: []string{
			"On the page of your app, open **Basic Information**, **App Credentials**, and set {secret} to the **Signing Secret** first: the next step is signed with it.",
			"Open **Event Subscriptions**, and switch **Enable Events** on.",
			"**Request URL** is {url}. Slack verifies it at once.",
			"Under **Subscribe to bot events**, add what your automations ask for, save, and reinstall the app if Slack asks for it.",
			"Leave **Interactivity** and **Slash Commands** away from this URL: they send forms, which are no JSON.",
		},
		First:  "Slack sends `url_verification`, signed, and this server gives back its challenge. It is no delivery.",
		Source: "https://api.slack.com/apis/http",
	},
	"linear": {
		Steps: []string{
			"Open **Settings**, **API**, **Webhooks**, **New webhook**. You must be an admin of the workspace.",
			"The URL is {url}.",
			"Choose the data changes that your automations ask for, such as issues and comments, and one team or all public teams.",
			"Set {secret} to the signing secret on the webhook's page.",
		},
	},
	"jira": {
		Steps: []string{
			"As an administrator, open **Settings**, **System**, **WebHooks**, **Create a WebHook**.",
			"**URL** is {url}.",
			"**Secret** is the value of {secret}.",
			"Choose the events that your automations ask for; a JQL query narrows them to the issues that count.",
			"Only webhooks that an administrator makes there are signed. Those of Connect apps are of the scheme `jira_connect`.",
		},
	},
	"pagerduty": {
		Steps: []string{
			"Open **Integrations**, **Generic Webhooks (v3)**, **New Webhook**.",
			"**Webhook URL** is {url}.",
			"Under **Scope Type** and **Scope**, choose the service, the team or the account.",
			"Under **Event Subscription**, choose what your automations ask for, and press **Add Webhook**.",
			"The secret is shown once, when the webhook has been added: set {secret} to it.",
		},
		Source: "https://support.pagerduty.com/docs/webhooks",
	},
	"grafana": {
		Steps: []string{
			"Open **Alerting**, **Notification configuration**, and its tab **Contact points**; before version 13, the page **Contact points**. Press **Add contact point**, and choose the integration **Webhook**.",
			"**URL** is {url}.",
			"Under **HMAC Signature**, the secret is the value of {secret}. If you set a header there, state the same one in `signature.header` of the webhook's file.",
			"Press **Test**: it is a delivery like any other. Press **Save contact point**, and name it in a notification policy.",
		},
	},
	"circleci": {
		Steps: []string{
			"Open **Projects**, **Project Settings** in the menu of the project, **Webhooks**, **Add Webhook**. You must be an admin of the organisation.",
			"The URL is {url}. Leave the validation of its certificate on.",
			"**Secret token** is the value of {secret}: without one, CircleCI signs nothing.",
			"Choose the events that your automations ask for: `workflow-completed`, `job-completed`. Save.",
			"**Test Ping Event** sends an abbreviated example: it is a delivery like any other.",
		},
	},
	"vercel": {
		Steps: []string{
			"Open **Team Settings**, **Webhooks**.",
			"Choose the events that your automations ask for, and the projects.",
			"Enter {url} as the endpoint URL, and create it.",
			"The secret is shown once: set {secret} to it. For webhooks of an integration, it is the **Client Secret**.",
		},
		Source: "https://vercel.com/docs/webhooks",
	},
	"shopify": {
		Steps: []string{
			"Subscribe {url} to the topics that your automations ask for: in the app's configuration or by the Admin API, in the format JSON.",
			"Set {secret} to the app's client secret.",
			"For webhooks that are made under **Settings**, **Notifications**, **Webhooks**, it is the secret that is shown there.",
		},
	},
	"twilio_json": {
		Steps: []string{
			"Only for what Twilio sends as JSON, such as Event Streams. Incoming messages and calls come as forms, which are refused.",
			"Enter {url} as the URL of the sink or of the product.",
			"Set {secret} to the **Auth Token** of the account.",
		},
	},
	"svix": {
		Steps: []string{
			"In the webhook settings of the sender, press **Add Endpoint**.",
			"**Endpoint URL** is {url}.",
			"Choose the events that your automations ask for, and create it.",
			"Set {secret} to the **Signing Secret** on the endpoint's page: all of it, with `whsec_`.",
			"The tab **Testing** sends an example: it is a delivery like any other.",
		},
	},
	"standard_webhooks": {
		Steps: []string{
			"In the webhook settings of the sender, add {url} as an endpoint.",
			"Choose the events that your automations ask for.",
			"If the sender shows a signing secret, which begins with `whsec_`, set {secret} to it. If it takes yours, enter the value of {secret}.",
		},
	},
	"buildkite": {
		Steps: []string{
			"Open **Settings** in the global navigation, **Notification Services**, and press **Add** beside **Webhook**.",
			"**Webhook URL** is {url}.",
			"Let the **Token** be sent as `X-Buildkite-Signature`, rather than as plain text, and set {secret} to it.",
			"Choose the **Events** that your automations ask for, and the **Pipelines**.",
		},
		First: "Buildkite sends the event `ping` when the webhook is saved. It is accepted, and starts nothing unless an automation asks for it.",
	},
	"token_header": {
		Steps: []string{
			"For senders that can add a header to what they send, such as Datadog (**Custom Headers** of its Webhooks integration).",
			"Enter {url} as the URL, and the value of {secret} as the value of a header of your choice.",
			"Name that header in `signature.header` of the webhook's file.",
			"If the sender has a template for the body, let it make one JSON object.",
		},
	},
}
