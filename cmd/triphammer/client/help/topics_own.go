package help

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/settings"
	"triphammer/docs"
	"triphammer/factory/signature"
)

// signaturesTopic tells how senders sign, and names the schemes.
func signaturesTopic() docs.Topic {
	return docs.Topic{Name: "signatures", Guide: "senders", Short: "how senders sign, and the schemes by name", Text: `A webhook with ` + "`authMode: signature`" + ` takes only deliveries that its sender has signed with a secret that both know:

` + "```" + `
# webhooks/ci.yaml
authMode: signature
signatureScheme: github
secretName: CI_WEBHOOK_SECRET
` + "```" + `

* ` + "`triphammer schemes NAME`" + ` says what a scheme signs, in which headers, and how long a signature is good.
* ` + "`triphammer secrets set CI_WEBHOOK_SECRET`" + ` takes the secret from standard input.
* ` + "`triphammer send ci`" + ` signs as the sender does, and ` + "`triphammer webhooks test ci`" + ` lets the server do it.
* A sender that is not here and signs with HMAC has ` + "`signatureScheme: hmac`" + `: triphammer schemes hmac.

The schemes: ` + strings.Join(signature.Names(), ", ") + "."}
}

// otherVariables are those that no flag of serve has.
var otherVariables = [][2]string{
	{"TRIPHAMMER_SERVER, TRIPHAMMER_DATA, TRIPHAMMER_CONTEXT", "which server commands reach, as --server, --data and --context"},
	{"TRIPHAMMER_API_KEY", "the key for TRIPHAMMER_SERVER and --server; TRIPHAMMER_API_KEY_FILE names a file with it"},
	{"TRIPHAMMER_WEBHOOK_SECRET", "the secret with which send signs; TRIPHAMMER_WEBHOOK_SECRET_FILE names a file with it"},
	{"TRIPHAMMER_KEY_FILE", "where the key is that seals the secrets (default: key in the data directory)"},
	{"XDG_CONFIG_HOME", "where the contexts are (default: ~/.config)"},
	{"VISUAL, EDITOR", "the editor of commands that change a definition"},
	{"BROWSER, DISPLAY, WAYLAND_DISPLAY", "the browser of open, and whether there is a screen"},
	{"NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM", "whether there are colours"},
	{"COLUMNS", "how wide tables are"},
	{"GITHUB_STEP_SUMMARY", "where validate writes its summary in GitHub Actions, which sets it"},
	{"NOTIFY_SOCKET", "where a server tells systemd that it serves, which sets it"},
}

// VariablesTopic lists the variables. Those of a server are made from its flags.
func VariablesTopic(flags *pflag.FlagSet) docs.Topic {
	var b strings.Builder
	b.WriteString("A flag wins over its variable, and a variable over the configuration file (--config).\n\n| variable | what |\n| --- | --- |\n")
	for _, v := range otherVariables {
		fmt.Fprintf(&b, "| %s | %s |\n", v[0], v[1])
	}
	if all := settings.Among(flags); len(all) > 0 {
		b.WriteString("\nEach setting of serve has a variable, and workers and dev take those of their flags:\n")
		last := ""
		for _, f := range all {
			if f.Hidden || slices.Contains(settings.TargetFlags, f.Name) {
				continue
			}
			if group := settings.GroupOf(f); group != last {
				last = group
				fmt.Fprintf(&b, "\n| %s | what |\n| --- | --- |\n", strings.ToLower(group))
			}
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, "| %s | %s |\n", settings.VariableOf(f), strings.ReplaceAll(usage, "|", "or"))
		}
	}
	return docs.Topic{Name: "variables", Guide: "operating", Short: "the variables that set something", Text: strings.TrimSpace(b.String())}
}

var contextsTopic = docs.Topic{Name: "contexts", Guide: "operating", Short: "which server commands reach, and with which key", Text: `A context is a server that you have saved, with its key:

` + "```" + `
triphammer context add prod --server https://hammer.example.com
triphammer context use prod
triphammer auth whoami
` + "```" + `

The first of these that names a server wins:

1. the flags ` + "`--server`, `--data` and `--context`" + `;
2. the variables TRIPHAMMER_SERVER, TRIPHAMMER_DATA and TRIPHAMMER_CONTEXT, in this order;
3. a folder in which ` + "`triphammer dev`" + ` has run;
4. the current context;
5. the server that a package installed on this machine, for its own user.

A key goes only to the server that it was saved for. The contexts are in ` + "`$XDG_CONFIG_HOME/triphammer/contexts.json`" + `, which nobody else may be able to read.`}

var deployTopic = docs.Topic{Name: "deploy", Guide: "install", Short: "from a package to a server that others reach", Text: `On Debian and Ubuntu; the guide has RPM, archives and containers:

` + "```" + `
sudo apt install ./triphammer_VERSION_linux_amd64.deb
sudoedit /etc/triphammer/config.yaml
sudo systemctl enable --now triphammer
sudo -u triphammer triphammer status
` + "```" + `

* Behind a proxy: ` + "`triphammer help reverse-proxy`" + `. Publish the path /webhooks/w/ alone, unless people come from outside too.
* Walls around runs: ` + "`triphammer doctor`" + ` says what this machine can do, and ` + "`triphammer help security`" + ` what it means.
* A copy of the store: ` + "`triphammer help backup`" + `. A newer version: ` + "`triphammer help upgrade`" + `.
* More than one machine, and Kubernetes: the guides scaling.md and kubernetes.md.`}
