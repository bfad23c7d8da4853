package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func schedulesCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List schedules, by name", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			var answer api.List[api.Schedule]
			if err := cl.Get(c.Context(), "/agent/schedules", &answer); err != nil {
				return err
			}
			return term.EmitOf(c, answer.Entries, func(s api.Schedule) string { return s.Factory }, func(s api.Schedule) string { return s.ID }, []string{"ID", "NAME", "CRON", "ENABLED", "NEXT", "LAST", "DETAIL"},
				func(s api.Schedule) term.Cells {
					return term.Cells{s.ID, term.Prose(s.Name), s.Cron, term.YesNo(s.Enabled), s.History.NextRun, s.History.LastRan, term.Prose(cmp.Or(s.PausedReason, s.LastSpawnError))}
				})
		}),
	}
	var name, cron, prompt, environment, agent string
	create := &cobra.Command{
		Use: "create NAME --cron EXPRESSION --prompt TEXT", Short: "Start a run at every tick of a cron expression, in UTC", Args: cobra.MaximumNArgs(1),
		Example: "  triphammer schedules create tidy --cron '0 6 * * MON-FRI' --prompt 'Tidy up.' --environment app",
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			switch {
			case len(args) > 0 && c.Flags().Changed("name"):
				return exit.With(exit.Usage, "give the name once: as NAME or as --name")
			case len(args) > 0:
				name = args[0]
			case name == "":
				return Exactly("NAME")(c, args)
			}
			body := map[string]any{
				"name": name, "cron_schedule": cron, "prompt": prompt, "agent_config": map[string]string{"environment_id": environment},
			}
			if agent != "" {
				body["agent_uid"] = agent
			}
			return schedule(c, cl, http.MethodPost, "/agent/schedules", body)
		}),
	}
	show := &cobra.Command{
		Use: "show NAME|ID", Short: "Show a schedule", Args: Exactly("NAME|ID"),
		RunE: ofSchedule(func(c *cobra.Command, cl *Client, path string) error {
			return schedule(c, cl, http.MethodGet, path, nil)
		}),
	}
	edit := &cobra.Command{
		Use: "edit NAME|ID", Short: "Change when a schedule starts runs, or what they are to do", Args: Exactly("NAME|ID"),
		Long: `Change a schedule that was made by command, page or API. What no flag names stays. Its runs are yours from then on. Times are
UTC. The schedule of an automation is a trigger in the automation's file: change it there.`,
		Example: "  triphammer schedules edit tidy --cron '0 9 * * MON-FRI'",
		RunE:    ofSchedule(func(c *cobra.Command, cl *Client, path string) error { return editSchedule(c, cl, path, environment) }),
	}
	for _, c := range []*cobra.Command{create, edit} {
		f := c.Flags()
		f.StringVar(&name, "name", "", "how lists show it, and the title of its runs")
		f.StringVar(&cron, "cron", "", "five fields such as '0 9 * * MON-FRI', or @hourly, @daily, @every 90m …")
		f.StringVar(&prompt, "prompt", "", "what the agent is to do")
		f.StringVar(&environment, "environment", "", "where it runs: NAME or FACTORY/NAME")
		f.StringVar(&agent, "agent", "", "an agent of the definitions that it runs as")
	}
	change := func(use, short, suffix string) *cobra.Command {
		return &cobra.Command{
			Use: use + " NAME|ID", Short: short, Args: Exactly("NAME|ID"),
			RunE: ofSchedule(func(c *cobra.Command, cl *Client, path string) error {
				return schedule(c, cl, http.MethodPost, path+suffix, nil)
			}),
		}
	}
	pause, resume := change("pause", "Stop a schedule from starting runs until it is resumed", "/pause"), change("resume", "Resume a schedule: it starts runs again", "/resume")
	remove := &cobra.Command{
		Use: "delete NAME|ID", Short: "Delete a schedule; its runs stay", Args: Exactly("NAME|ID"),
		RunE: ofSchedule(func(c *cobra.Command, cl *Client, path string) error {
			return cl.Call(c.Context(), http.MethodDelete, path, nil, nil)
		}),
	}
	for _, c := range []*cobra.Command{list, show, create, edit, pause, resume, remove} {
		ClientFlags(c)
		if c != remove {
			term.OutputFlag(c)
		}
	}
	return Noun("schedules", "What starts runs by the clock", list, show, create, edit, pause, resume, remove)
}

// ofSchedule runs a command on the schedule that its argument names, with the path of that in the API.
// Names need not be unique, ids are.
func ofSchedule(run func(c *cobra.Command, cl *Client, path string) error) func(*cobra.Command, []string) error {
	return WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
		id := args[0]
		if !strings.HasPrefix(id, terms.SchedulePrefix) {
			all, err := Collect[api.Schedule](c.Context(), cl, "/agent/schedules", url.Values{}, 0)
			if err != nil {
				return err
			}
			var names, ids []string
			for _, s := range all {
				names = append(names, s.Name)
				if s.Name == args[0] {
					ids = append(ids, s.ID)
				}
			}
			switch len(ids) {
			case 0:
				return exit.With(exit.NotFound, "%s", api.NoneNamed("schedule", args[0], names))
			case 1:
				id = ids[0]
			default:
				return exit.With(exit.Usage, "several schedules are named %s: give the ID of one: %s", args[0], strings.Join(ids, ", "))
			}
		}
		return run(c, cl, "/agent/schedules/"+url.PathEscape(id))
	})
}

// editSchedule changes of a schedule what the flags name. A PUT takes the whole schedule.
func editSchedule(c *cobra.Command, cl *Client, path, environment string) error {
	var was api.Schedule
	if err := cl.Get(c.Context(), path, &was); err != nil {
		return err
	}
	if was.Automation != "" {
		return exit.With(exit.Usage, "%s is a trigger of the automation %s: change it in the file of that", was.Name, was.Automation)
	}
	config := map[string]any{}
	if err := json.Unmarshal(was.AgentConfig, &config); len(was.AgentConfig) > 0 && err != nil {
		return err
	}
	if config == nil {
		config = map[string]any{}
	}
	body := map[string]any{
		"name": was.Name, "cron_schedule": was.Cron, "prompt": was.Prompt, "agent_config": config, "enabled": was.Enabled, "metadata": was.Metadata,
	}
	if was.AgentUID != "" {
		body["agent_uid"] = was.AgentUID
	}
	changed := false
	for flag, key := range map[string]string{"name": "name", "cron": "cron_schedule", "prompt": "prompt", "agent": "agent_uid"} {
		if f := c.Flags().Lookup(flag); f.Changed {
			body[key], changed = f.Value.String(), true
		}
	}
	if c.Flags().Changed("environment") {
		config["environment_id"], changed = environment, true
	}
	if !changed {
		return exit.With(exit.Usage, "what is to change? See: %s --help", c.CommandPath())
	}
	return schedule(c, cl, http.MethodPut, path, body)
}

// schedule makes a request whose answer is a schedule, and prints the schedule.
func schedule(c *cobra.Command, cl *Client, method, path string, body any) error {
	var s api.Schedule
	if err := cl.Call(c.Context(), method, path, body, &s); err != nil {
		return err
	}
	return term.Emit(c, s, []string{s.ID}, func(w io.Writer) error {
		t := term.Table{Header: []string{"schedule", s.ID}}
		for _, row := range []term.Cells{
			{"name", s.Name},
			{"cron", s.Cron},
			{"enabled", term.YesNo(s.Enabled)},
			{"automation", s.Automation},
			{"agent", s.AgentUID},
			{"next", s.History.NextRun},
			{"last", s.History.LastRan},
			{"paused", s.PausedReason},
			{"problem", s.LastSpawnError},
			{"creator", fmt.Sprint(s.CreatedBy.Type, " ", s.CreatedBy.DisplayName)},
			{"created", s.CreatedAt},
			{"changed by", fmt.Sprint(s.UpdatedBy.Type, " ", s.UpdatedBy.DisplayName)},
		} {
			t.Add(row...)
		}
		return t.Write(w)
	})
}
