package host

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/factory/hosts"
	"triphammer/server/api"
	"triphammer/server/disk"
	"triphammer/server/inside/limits"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor"
)

// wallOptions are the flags of what is around runs: walls, network, limits (SPEC 14).
type wallOptions struct {
	walls                executor.Config
	network              []string
	memory, disk, output string // sizes
	command              string // of the isolation command, with arguments
	executor             executorOptions
}

func (o *wallOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.walls.Isolation, "isolation", executor.Auto,
		"walls around the runs: "+strings.Join(executor.Isolations(), ", ")+" (auto: the strongest of sandbox and kernel that works here)")
	f.StringVar(&o.command, "isolation-command", "", "program with arguments that starts runs if --isolation is command; it gets the supervisor's command line after them")
	f.StringVar(&o.walls.Container.Program, "container-program", executor.Auto,
		"container engine for runs in an image: podman, docker, a path, none, or auto (Podman, or else Docker)")
	f.StringVar(&o.walls.Container.Image, "container-image", "", "image of runs in containers whose definitions name none")
	f.StringVar(&o.walls.Container.Options, "container-options", "", "further options for the run command of the container engine, separated by spaces, such as '-v /cache:/cache --network=agents'")
	f.StringVar(&o.walls.User, "run-user", "", "user of the runs, if the server is root (default: triphammer-run if it exists, otherwise nobody)")
	f.StringSliceVar(&o.walls.Read, "run-read", nil, "files and folders that runs may read besides the system and the folders of PATH")
	f.StringSliceVar(&o.network, "run-network", []string{"on"},
		"network of runs whose environment says nothing about it: on, off, or the hosts that they may reach, such as api.example.com or *.example.com:8443")
	f.StringVar(&o.memory, "run-memory", "", "memory of a run, such as 4GiB (default: half of the machine's)")
	f.Float64Var(&o.walls.Limits.CPUs, "run-cpus", 0, "CPUs of a run, such as 1.5; 0: all")
	f.Int64Var(&o.walls.Limits.Processes, "run-processes", 0, "processes and threads of a run (default: 128 for each CPU, at least 2048)")
	f.StringVar(&o.disk, "run-disk", "", "space for the files of a run, such as 10GiB (default: what --min-free leaves)")
	f.StringVar(&o.output, "run-output", "", "text that a run may print (default: 256MiB)")
}

// settleWalls checks the flags.
func (o *wallOptions) settleWalls() error {
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{{"run-memory", o.memory, &o.walls.Limits.Memory}, {"run-disk", o.disk, &o.walls.Limits.Disk}, {"run-output", o.output, &o.walls.Limits.Output}} {
		if size.text == "" {
			continue
		}
		n, err := disk.ParseSize(size.text)
		if err != nil {
			return exit.With(exit.Usage, "--%s: %w", size.flag, err)
		}
		*size.to = n
	}
	if o.walls.Command = strings.Fields(o.command); (o.walls.Isolation == executor.Command) != (len(o.walls.Command) > 0) {
		return exit.With(exit.Usage, "--isolation command and --isolation-command PROGRAM need each other")
	}
	if l := o.walls.Limits; l.CPUs < 0 || l.Processes < 0 {
		return exit.With(exit.Usage, "--run-cpus and --run-processes are not negative")
	}
	switch {
	case slices.Equal(o.network, []string{"on"}):
		o.walls.Network = task.Network{On: true}
	case slices.Equal(o.network, []string{"off"}):
		o.walls.Network = task.Network{Off: true}
	default:
		if _, err := hosts.ParseList(o.network); err != nil {
			return exit.With(exit.Usage, "--run-network is on, off or a list of hosts: %w", err)
		}
		o.walls.Network = task.Network{Hosts: o.network}
	}
	return o.settleExecutor()
}

// ownAddresses are the addresses on which a listener can be reached from this machine.
func ownAddresses(l net.Listener) (all []netip.AddrPort) {
	listening, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return nil
	}
	if !listening.Addr().IsUnspecified() {
		return []netip.AddrPort{listening}
	}
	addresses, _ := net.InterfaceAddrs() // without them, those of loopback are left out by the proxy's own rules
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, netip.AddrPortFrom(prefix.Addr().Unmap(), listening.Port()))
		}
	}
	return all
}

// isolation is what status tells of the walls.
func (in *instance) isolation() *api.Isolation {
	name, lacking := in.runner().Isolation()
	if in.cluster != nil {
		return &api.Isolation{Name: name, Lacking: []string{}, Limits: []string{}}
	}
	containers, _ := in.executor.Containers() // doctor and the log say why there are none
	shown := &api.Isolation{Name: name, User: in.executor.User(), Containers: containers, Lacking: []string{}, Limits: []string{}}
	for _, err := range lacking {
		shown.Lacking = append(shown.Lacking, err.Error())
	}
	if m := in.opt.walls.Machine; m != nil {
		shown.Limits = m.Kept()
	}
	return shown
}

// doctorWalls tries the walls on this machine, for the user of the command. It returns what
// auto chooses; empty: nothing works.
func doctorWalls(c *cobra.Command, r *findings) (works string) {
	found, err := executor.Survey(c.Context())
	if err != nil {
		r.say(false, "isolation", err.Error())
		return ""
	}
	for _, f := range found {
		if f.Problem == nil && works == "" {
			works = f.Isolation
		}
	}
	for _, f := range found {
		switch {
		case f.Problem != nil && works == "":
			r.say(false, "isolation", fmt.Sprintf("%s does not work here: %v", f.Isolation, f.Problem))
		case f.Problem != nil:
			r.note("isolation", fmt.Sprintf("%s does not work here: %v", f.Isolation, f.Problem))
		case f.Isolation == works:
			r.say(true, "isolation", f.Isolation+" works here, and is what auto chooses")
		default:
			r.say(true, "isolation", f.Isolation+" works here")
		}
	}
	return works
}

// doctorContainers tells whether runs can get containers. It is no problem if they cannot,
// because perhaps nobody wants one.
func doctorContainers(c *cobra.Command, r *findings) error {
	if err := settings.FromEnvironment(c.Flags(), nil, "container-program"); err != nil {
		return err
	}
	program, _ := c.Flags().GetString("container-program")
	if engine, err := executor.Engine(program); err != nil {
		r.note("containers", err.Error())
	} else {
		r.say(true, "containers", engine+", for runs that demand an image or a container")
	}
	return nil
}

// probeMachine finds out how limits of runs are kept. It comes before any other process
// is started.
func (s *serving) probeMachine() { s.walls.Machine = limits.Probe(s.logger) }
