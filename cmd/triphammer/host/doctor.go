package host

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/disk"
	"triphammer/server/inert"
	"triphammer/server/worker/executor"
)

func doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Check what the server needs on this machine", Args: cobra.NoArgs,
		Long: "Check what the server needs on this machine: git, walls around runs, and the harnesses, which are\n" +
			"the agents that definitions name. With --data or --server, check that server too.\n\n" +
			"\"ok\" is fine, \"--\" is for your information, and \"BAD\" has to be cured: the exit status is 1 then.",
		RunE: doctor,
	}
	client.ClientFlags(c)
	c.Flags().StringSlice("run-read", nil, "files and folders that runs may read, as in serve --run-read")
	c.Flags().String("container-program", executor.Auto, "container engine, as in serve --container-program")
	return c
}

// findings are what doctor prints.
type findings struct {
	out io.Writer
	bad bool
}

func (f *findings) say(ok bool, what, detail string) {
	mark := "ok"
	if !ok {
		mark, f.bad = "BAD", true
	}
	f.line(mark, what, detail)
}

// note says what is neither good nor bad.
func (f *findings) note(what, detail string) { f.line("--", what, detail) }

func (f *findings) line(mark, what, detail string) {
	fmt.Fprintf(f.out, "%-4s %-12s %s\n", mark, what, detail)
}

// doctor checks this machine, and the data directory or server if one is named.
func doctor(c *cobra.Command, _ []string) error {
	found := &findings{out: c.OutOrStdout()}
	say := found.say
	if version := gitVersion(); version == "" {
		say(false, "git", "not found; runs clone repositories with it, init makes one")
	} else {
		say(true, "git", version)
	}
	say(runtime.GOOS == "linux", "system", runtime.GOOS+"/"+runtime.GOARCH)
	isolation := doctorWalls(c, found)
	if err := doctorContainers(c, found); err != nil {
		return err
	}
	if err := doctorHarnesses(c, found, isolation); err != nil {
		say(false, "harnesses", err.Error())
	}
	if t, err := client.TargetOf(c); err != nil {
		return err
	} else if t.None() {
		say(true, "server", "none named: give --data DIR, --server URL or --context NAME to check one")
	} else if cl, err := client.Connect(c, false); err != nil {
		say(false, "server", err.Error())
	} else {
		defer cl.Close()
		var s api.Status
		switch err := cl.Get(c.Context(), "/status", &s); {
		case err != nil:
			say(false, "server", err.Error())
		case cl.Offline:
			say(true, "data", t.Data+": store and sealing key fit; no server is running on it")
		default:
			say(true, "server", "version "+s.Version)
		}
		for _, p := range s.Storage.Volumes {
			detail := fmt.Sprintf("%s: %s of %s are free", p.Name, disk.Bytes(p.FreeBytes), disk.Bytes(p.TotalBytes))
			if p.FreeFiles != nil {
				detail += fmt.Sprintf(", and %d inodes", *p.FreeFiles)
			}
			say(true, "disk", detail)
		}
		if s.Clock.Problem != "" {
			say(false, "clock", s.Clock.Problem)
		}
		switch cert := s.Certificate; {
		case cert == nil:
		case !cert.Valid:
			say(false, "certificate", cert.Problem)
		case cert.Problem != "":
			found.note("certificate", cert.Problem)
		default:
			say(true, "certificate", "valid until "+term.When(found.out, cert.ExpiresAt))
		}
		for _, problem := range s.Storage.Problems {
			say(false, "storage", problem)
		}
		if s.Storage.State == "ok" {
			say(true, "storage", "what is written reaches the disk")
		}
		for _, f := range s.Factories {
			switch {
			case f.Empty():
				say(true, "definitions", api.WaitsForCommit)
			case f.Error != "":
				say(false, "definitions", f.Error)
			case f.Applied != nil:
				say(true, "definitions", "commit "+term.ShortHash(f.Applied.Commit)+" serves")
			}
		}
		if err := doctorConnections(c, found, cl); err != nil {
			say(false, "connections", err.Error())
		}
		if err := doctorApps(c, found, cl); err != nil {
			say(false, "secrets", err.Error())
		}
		if err := doctorCredentials(c, found, cl); err != nil {
			say(false, "credentials", err.Error())
		}
		if err := doctorAutomations(c, found, cl); err != nil {
			say(false, "automations", err.Error())
		}
	}
	if found.bad {
		return exit.Silently(exit.Bad)
	}
	return nil
}

// doctorConnections tells how the connections of webhooks are.
func doctorConnections(c *cobra.Command, r *findings, cl *client.Client) error {
	all, err := client.Collect[api.Webhook](c.Context(), cl, "/webhooks", url.Values{}, 0)
	if err != nil || cl.Offline {
		return err
	}
	for _, w := range all {
		if w.Connect != "" && w.Enabled && w.Paused == nil {
			r.say(w.Connection != nil && w.Connection.Since != nil, "connection", w.Name+": "+client.ConnectionText(r.out, &w))
		}
	}
	return nil
}

// doctorApps asks GitHub whether the keys of GitHub Apps work, and what the Apps may do. It changes
// nothing there.
func doctorApps(c *cobra.Command, r *findings, cl *client.Client) error {
	all, err := client.Collect[api.Secret](c.Context(), cl, "/secrets", url.Values{}, 0)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.GitHubApp == nil {
			continue
		}
		var told api.CheckedApp
		if err := cl.Call(c.Context(), http.MethodPost, "/secrets/"+url.PathEscape(s.Name)+"/check", nil, &told); err != nil {
			r.say(false, "GitHub App", s.Name+": "+inert.Text(err.Error()))
			continue
		}
		r.say(true, "GitHub App", inert.Text(fmt.Sprintf("%s is %s, whose key works; it is installed at %s", s.Name, told.Slug, told.Install)))
		if len(told.Lacking) > 0 {
			r.note("GitHub App", inert.Text(s.Name+" lacks "+strings.Join(told.Lacking, ", ")))
		}
	}
	return nil
}

// doctorCredentials asks senders whose the credentials for their APIs are, and what these lack for answers. It
// changes nothing there.
func doctorCredentials(c *cobra.Command, r *findings, cl *client.Client) error {
	all, err := client.Collect[api.Webhook](c.Context(), cl, "/webhooks", url.Values{}, 0)
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.APISecretName == "" || !w.Enabled {
			continue
		}
		secret := w.Name + ": the secret " + w.APISecretName + " "
		var told api.CheckedCredential
		path := "/factories/" + url.PathEscape(w.Factory) + "/webhooks/" + url.PathEscape(w.Name) + "/check"
		switch err := cl.Call(c.Context(), http.MethodPost, path, nil, &told); {
		case err != nil:
			r.say(false, "credential", inert.Text(w.Name+": "+term.OneLine.Replace(err.Error())))
		case len(told.Lacking) > 0:
			r.say(false, "credential", inert.Text(secret+"is of "+told.Account+" and lacks "+strings.Join(told.Lacking, ", ")+"; answers need "+told.Needs))
		default:
			r.say(true, "credential", inert.Text(secret+"is of "+told.Account))
		}
		if told.Untold != "" {
			r.note("credential", inert.Text(w.Name+": "+told.Untold+"; answers need "+told.Needs))
		}
	}
	return nil
}

// maxNamed bounds how many automations doctor names beside one fact.
const maxNamed = 5

// doctorAutomations tells what of the live definitions cannot act on the server, each fact
// once. It is for information: the server itself is well.
func doctorAutomations(c *cobra.Command, r *findings, cl *client.Client) error {
	all, err := client.Collect[api.Automation](c.Context(), cl, "/automations", url.Values{}, 0)
	if err != nil {
		return err
	}
	if cl.Offline && len(all) > 0 {
		r.note("automations", client.OfflineNotice)
	}
	concerned := make(map[string][]string)
	for _, a := range all {
		warnings := a.Warnings
		if a.Dormant != "" {
			warnings = append(warnings, a.Dormant)
		}
		for _, warning := range warnings {
			if a.Enabled {
				concerned[warning] = append(concerned[warning], a.Name)
			}
		}
	}
	for _, warning := range slices.Sorted(maps.Keys(concerned)) {
		names := strings.Join(concerned[warning], ", ")
		if n := len(concerned[warning]); n > maxNamed {
			names = fmt.Sprintf("%s and %d more", strings.Join(concerned[warning][:maxNamed], ", "), n-maxNamed)
		}
		r.note("automations", inert.Text(names+": "+term.OneLine.Replace(warning)))
	}
	return nil
}
