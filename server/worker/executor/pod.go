package executor

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"triphammer/factory/hosts"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/gateway"
)

// In a pod of a cluster (server/worker/executor/kubernetes), the supervisor has no server above it:
// it finds its job in a file, reports by the log of its container (podlog.go), and ends the
// run at SIGTERM. What must stay outside the walls, the proxy and the credentials of
// repositories, is in another container of the pod.

// What a container of a pod does, after SuperviseCommand.
const (
	podPlace  = "place"  // FILE PROGRAM: copy this program and what belongs to it there
	podEgress = "egress" // FILE: serve the way out that the file describes
	podRun    = "pod"    // FILE FOLDER: execute the job of the file in the folder
)

// PlaceCommand, EgressCommand and PodCommand are the arguments of this program in the
// containers of a pod.
func PlaceCommand(file, program string) []string {
	return []string{SuperviseCommand, podPlace, file, program}
}
func EgressCommand(file string) []string { return []string{SuperviseCommand, podEgress, file} }
func PodCommand(file, folder string) []string {
	return []string{SuperviseCommand, podRun, file, folder}
}

// PodConfig is what NewPod needs.
type PodConfig struct {
	Task     *task.Task
	Image    string       // of the run
	Network  task.Network // of the task, or the default
	Key      []byte       // with which the containers seal their reports
	Loopback string       // address of the pod on which its way out serves, such as 127.1.2.3
	Grace    time.Duration
}

// Pod is what the containers of a pod read. Both parts hold secrets.
type Pod struct {
	Job    []byte // of the supervisor
	Egress []byte // of the way out; nil: there is none
}

// podJob is what a supervisor in a pod reads.
type podJob struct {
	Key     []byte        `json:"key"`
	Grace   time.Duration `json:"grace"`
	Job     job           `json:"job"`
	Limited bool          `json:"limited,omitempty"` // the run reaches the Ports alone
	Ports   []uint16      `json:"ports,omitempty"`
	Wait    []string      `json:"wait,omitempty"` // until these addresses answer
}

// podWayOut is what the container of the way out reads.
type podWayOut struct {
	Key          []byte          `json:"key"`
	Hosts        []string        `json:"hosts,omitempty"`
	Proxy        string          `json:"proxy,omitempty"` // address
	Repositories []podRepository `json:"repositories,omitempty"`
	Gateway      string          `json:"gateway,omitempty"` // address
	Token        string          `json:"token,omitempty"`
}

type podRepository struct {
	URL        string `json:"url"`
	Secret     string `json:"secret"`
	Credential string `json:"credential"`
	ReadOnly   bool   `json:"read_only,omitempty"`
}

// Ports of the way out, unless the run may reach other hosts by them: then the next are taken.
const (
	podProxyPort   = 3128
	podGatewayPort = 8128
)

// PodPorts are the ports by which a pod with the task reaches other hosts, in order, if its
// network is limited.
func PodPorts(t *task.Task, n task.Network) (ports []uint16) {
	for _, text := range n.Hosts {
		if p, err := hosts.Parse(text); err == nil {
			ports = append(ports, p.Port())
		}
	}
	for _, r := range t.Repositories {
		u, err := url.Parse(r.URL)
		if r.Secret == "" || err != nil {
			continue
		}
		if h, err := hosts.ParseHost(u.Host, cmp.Or(map[string]uint16{"http": 80}[u.Scheme], 443)); err == nil {
			ports = append(ports, h.Port)
		}
		ports = append(ports, 443) // where pull requests are opened
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// free is the first port from one on that is not used.
func free(port uint16, used []uint16) uint16 {
	for slices.Contains(used, port) {
		port++
	}
	return port
}

// NewPod makes what the containers of a pod read.
func NewPod(cfg PodConfig) (*Pod, error) {
	t, n := cfg.Task, network(cfg.Network)
	used := PodPorts(t, cfg.Network)
	vars := make(map[string]string)
	out := podWayOut{Key: cfg.Key}
	j := podJob{Key: cfg.Key, Grace: cfg.Grace, Limited: n.limited()}
	if len(n.Hosts) > 0 {
		port := free(podProxyPort, used)
		out.Hosts, out.Proxy = n.Hosts, fmt.Sprintf("%s:%d", cfg.Loopback, port)
		maps.Copy(vars, gateway.Environ(out.Proxy))
		j.Wait, j.Ports = append(j.Wait, out.Proxy), append(j.Ports, port)
	}
	for _, r := range t.Repositories {
		if filepath.IsAbs(r.URL) || strings.HasPrefix(r.URL, "file:") {
			return nil, never("the repository %s is a folder of another machine than that of the run: give it a URL", r.URL)
		}
		if r.Secret != "" {
			out.Repositories = append(out.Repositories, podRepository{r.URL, r.Secret, t.Credentials[r.Secret].Reveal(), r.ReadOnly})
		}
	}
	settings := ""
	if len(out.Repositories) > 0 {
		port := free(podGatewayPort, used)
		out.Gateway, out.Token = fmt.Sprintf("%s:%d", cfg.Loopback, port), secret.RandomText(43)
		j.Wait, j.Ports = append(j.Wait, out.Gateway), append(j.Ports, port)
		g, err := out.gateway(nil)
		if err != nil {
			return nil, &task.FinalError{Err: err}
		}
		settings = g.Settings(out.Gateway)
	}
	job := jobOf(t, vars)
	job.GitSettings, job.Inherit, job.Image, job.Bounded = settings, true, cfg.Image, true
	j.Job = *job
	p := &Pod{}
	var err error
	if p.Job, err = packed(j); err == nil && len(out.Hosts)+len(out.Repositories) > 0 {
		p.Egress, err = packed(out)
	}
	return p, err
}

// packed is the value as compressed JSON: a cluster keeps at most 1 MiB in one secret.
func packed(value any) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := errors.Join(json.NewEncoder(z).Encode(value), z.Close())
	return b.Bytes(), err
}

func unpack(file string, to any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(to)
}

// place copies this program to the file, and beside it git and the program of the agent, if this
// image has them, for an image that does not.
func place(file, program string) int {
	if err := copyTool(self, file); err != nil {
		return said(err)
	}
	t, err := makeTools(filepath.Dir(file), os.Getenv("PATH"))
	if err == nil {
		err = t.place(program, os.Getenv("PATH"))
	}
	if err != nil {
		_ = said(err) // the image of the run may have its own
	}
	return 0
}

// supervisePod executes the job of the file in the folder, and returns the exit status: 0 if
// the end of the job is reported, however it was.
func supervisePod(file, dir string) int {
	var p podJob
	if err := unpack(file, &p); err != nil {
		return said(fmt.Errorf("the job of the run cannot be read: %w", err))
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM, syscall.SIGINT)
	orders, give := io.Pipe()
	ended := make(chan struct{})
	report, err := newLineWriter(os.Stdout, p.Key, func(kind byte) {
		if kind == frameEnd {
			close(ended)
		}
	})
	if err != nil {
		return said(fmt.Errorf("the report of the run cannot be written: %w", err))
	}
	if err := p.waitForWayOut(terms); err != nil {
		return said(err)
	}
	confine, err := p.confine(file, dir)
	if err != nil {
		return said(err)
	}
	p.settle(folder{dir})
	go func() {
		defer func() { _ = give.Close() }()
		tell := json.NewEncoder(give)
		_ = tell.Encode(order{Job: &p.Job}) // supervise reads to the end
		for next := (order{Interrupt: true}); ; next = (order{Kill: true}) {
			var wait <-chan time.Time
			if next.Kill {
				wait = time.After(p.Grace)
			}
			for asked := false; !asked; {
				select {
				case <-ended:
					return
				case <-terms:
					asked = next.Interrupt // a second one changes nothing
				case <-wait:
					asked = true
				}
			}
			_ = tell.Encode(next)
			if next.Kill {
				<-ended
				return
			}
		}
	}()
	return supervise(confine, report, orders)
}

// settle completes the job with what only the pod knows.
func (p *podJob) settle(f folder) {
	p.Job.Root = f.root
	if program, err := os.Executable(); err == nil {
		p.Job.Tools = tools(filepath.Dir(program) + toolsFolder)
	}
}

// confine is what the supervisor takes away from itself. The run reads everything in its
// image, but not the job.
func (p *podJob) confine(file, dir string) (confinement, error) {
	if err := os.MkdirAll(folder{dir}.temp(), 0o700); err != nil {
		return confinement{}, fmt.Errorf("making the folder of the run: %w", err)
	}
	c := elsewhere()
	c.Read = visible("/", filepath.Dir(file))
	c.Write = append(slices.DeleteFunc(slices.Clone(c.Read), func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir()
	}), dir)
	if p.Limited {
		if v := landlockVersion(); v < landlockPorts {
			return c, fmt.Errorf("the network of this run is to be limited, which the kernel of its node cannot do: "+
				"Landlock has version %d there, and this takes version %d (Linux 6.7)", v, landlockPorts)
		}
		c.Limited, c.Ports = true, p.Ports
	}
	return c, nil
}

// visible is what is in dir, without what is hidden.
func visible(dir, hidden string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, entry := range entries {
		switch path := filepath.Join(dir, entry.Name()); {
		case path == hidden:
		case strings.HasPrefix(hidden, path+"/"):
			all = append(all, visible(path, hidden)...)
		default:
			all = append(all, path)
		}
	}
	return all
}

// wayOutTime is how long the way out may take to begin.
const wayOutTime = 30 * time.Second

// waitForWayOut waits until the other container serves.
func (p *podJob) waitForWayOut(stop <-chan os.Signal) error {
	deadline := time.Now().Add(wayOutTime)
	for _, address := range p.Wait {
		for {
			c, err := net.DialTimeout("tcp", address, time.Second)
			if err == nil {
				_ = c.Close()
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the way out of the run does not answer: %w", err)
			}
			select {
			case <-stop:
				return errors.New("the pod was ended before its run began")
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// gateway makes the gateway to the private repositories.
func (w *podWayOut) gateway(report func(event.Egress)) (*gateway.Gateway, error) {
	cfg := gateway.GatewayConfig{Token: w.Token, Report: report}
	for _, r := range w.Repositories {
		cfg.Repositories = append(cfg.Repositories, gateway.Repository{URL: r.URL, Secret: r.Secret, Credential: secret.New(r.Credential), ReadOnly: r.ReadOnly})
	}
	return gateway.NewGateway(cfg)
}

// serveEgress serves the way out until SIGTERM. What the run contacts is reported by the log.
func serveEgress(file string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var w podWayOut
	if err := unpack(file, &w); err != nil {
		return said(fmt.Errorf("the way out of the run cannot be read: %w", err))
	}
	lines, err := newLineWriter(os.Stdout, w.Key, nil)
	if err != nil {
		return said(err)
	}
	frames := &frameWriter{w: lines}
	report := func(c event.Egress) {
		if told, err := encode(c); err == nil {
			_ = frames.tell(frameEvent, told) // without a reader, nobody wants it
		}
	}
	var serve []func() error
	add := func(address string, server interface {
		Serve(ctx context.Context, l net.Listener) error
	}, err error,
	) error {
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", address)
		serve = append(serve, func() error { return server.Serve(ctx, l) })
		return err
	}
	if w.Proxy != "" {
		p, err := gateway.New(gateway.Config{Hosts: w.Hosts, Report: report})
		if err := add(w.Proxy, p, err); err != nil {
			return said(fmt.Errorf("the proxy of the run: %w", err))
		}
	}
	if w.Gateway != "" {
		g, err := w.gateway(report)
		if err := add(w.Gateway, g, err); err != nil {
			return said(fmt.Errorf("the gateway of the run to its repositories: %w", err))
		}
	}
	ends := make(chan error, len(serve))
	for _, s := range serve {
		go func() { ends <- s() }()
	}
	for range serve {
		err = errors.Join(err, <-ends)
	}
	if err != nil && ctx.Err() == nil {
		return said(err)
	}
	return 0
}

// Bounded returns the limits of a task: its own, or else those of the operator.
func Bounded(own, operator task.Limits) task.Limits { return limits.Or(own, operator) }

// PodMemory is what the supervisor of a run in a pod uses beside the run, in bytes.
const PodMemory = limits.OwnMemory

// CheckImage says why a name is none of an image.
func CheckImage(name string) error { return checkImage(name) }

// Weaker tells whether an isolation is weaker than what a definition demands at least.
func Weaker(isolation, least string) bool {
	return slices.Index(strengths, isolation) < slices.Index(strengths, least)
}
