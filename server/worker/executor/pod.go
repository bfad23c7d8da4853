package executor

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"triphammer/factory/hosts"
	"triphammer/schema/output"
	"triphammer/server/inside"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/price"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/gateway"
	"triphammer/server/worker/metering"
)

// In a pod of a cluster (server/worker/executor/kubernetes), the supervisor has no server above it.
// It finds its job in a file, reports by the log of its container (podlog.go), and ends the run at
// SIGTERM. Another container of the pod has the proxy and the credentials of repositories, which
// must stay outside the walls.

// podEgress is the argument of the container that serves the way out that a file describes.
const podEgress = "egress"

// PlaceCommand are the arguments of this program in the container that copies this program and the
// agent's program to files for the other containers.
func PlaceCommand(file, program string) []string {
	return []string{inside.SuperviseCommand, inside.PodPlace, file, program}
}

// EgressCommand are the arguments of this program in the container that serves the way out. It keeps in counts what
// requests to models use.
func EgressCommand(file, counts string) []string {
	return []string{inside.SuperviseCommand, podEgress, file, counts}
}

// PodCommand are the arguments of this program in the container of the run.
func PodCommand(file, folder string) []string {
	return []string{inside.SuperviseCommand, inside.PodRun, file, folder}
}

// PodConfig is what NewPod needs.
type PodConfig struct {
	Task     *task.Task
	Image    string       // of the run
	Network  task.Network // of the task, or the default
	Key      []byte       // the containers seal their reports with it
	Loopback string       // address of the pod on which its way out serves, such as 127.1.2.3
	Grace    time.Duration
}

// Pod is the input of the containers of a pod. Both parts hold secrets.
type Pod struct {
	Job    []byte // for the supervisor
	Egress []byte // for the way out; nil: there is none
}

// podWayOut is what the container of the way out reads.
type podWayOut struct {
	Key          []byte          `json:"key"`
	Hosts        []string        `json:"hosts,omitempty"`
	Proxy        string          `json:"proxy,omitempty"` // address
	Repositories []podRepository `json:"repositories,omitempty"`
	Gateway      string          `json:"gateway,omitempty"` // address
	Token        string          `json:"token,omitempty"`
	Pushes       task.Pushes     `json:"pushes,omitzero"`
	Services     []podService    `json:"services,omitempty"`
	Meter        *task.Terms     `json:"meter,omitempty"` // nil: nobody counts
}

type podService struct {
	task.Service
	Added map[string]string `json:"added"` // headers with the credential
}

type podRepository struct {
	URL        string `json:"url"`
	Secret     string `json:"secret"`
	Credential string `json:"credential,omitempty"`
	Minted     string `json:"minted,omitempty"` // key of the credential in the file of tokens; empty: it is Credential
	ReadOnly   bool   `json:"read_only,omitempty"`
	Branch     string `json:"branch,omitempty"` // of the pull request that the event is about
}

// Ports of the way out. If the run may reach other hosts by a port, the next port is taken.
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
	for _, s := range t.Services {
		if u, err := url.Parse(s.URL); err == nil {
			if h, err := hosts.ParseHost(u.Host, cmp.Or(map[string]uint16{"http": 80}[u.Scheme], 443)); err == nil {
				ports = append(ports, h.Port)
			}
		}
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

// NewPod makes the input of the containers of a pod.
func NewPod(cfg PodConfig) (*Pod, error) {
	t, n := cfg.Task, cfg.Network
	used := PodPorts(t, cfg.Network)
	vars := make(map[string]string)
	out := podWayOut{Key: cfg.Key, Pushes: t.Pushes}
	j := inside.PodJob{Key: cfg.Key, Grace: cfg.Grace, Limited: n.Limited()}
	if len(n.Hosts) > 0 {
		port := free(podProxyPort, used)
		out.Hosts, out.Proxy = n.Hosts, fmt.Sprintf("%s:%d", cfg.Loopback, port)
		maps.Copy(vars, gateway.Environ(out.Proxy, cfg.Loopback)) // the gateway, too, is there
		j.Wait, j.Ports = append(j.Wait, out.Proxy), append(j.Ports, port)
	}
	for _, r := range t.Repositories {
		if filepath.IsAbs(r.URL) || strings.HasPrefix(r.URL, "file:") {
			return nil, inside.Never("the repository %s is a folder of another machine than that of the run: give it a URL", r.URL)
		}
		if r.Secret != "" {
			if err := inPod("private repository", r.URL); err != nil {
				return nil, err
			}
			minted := ""
			if t.Mints(r) {
				minted = mintedKey(r)
			}
			out.Repositories = append(out.Repositories, podRepository{r.URL, r.Secret, t.Credentials[r.Secret].Reveal(), minted, r.ReadOnly, r.PullBranch()})
		}
	}
	for _, s := range t.Services {
		if err := inPod("service "+s.Name, s.URL); err != nil {
			return nil, err
		}
		own := podService{s, make(map[string]string, len(s.Header))}
		for name, v := range s.Header {
			own.Added[name] = v.Reveal()
		}
		out.Services = append(out.Services, own)
	}
	if Counts(t) {
		terms := t.Grants.Terms()
		out.Meter = &terms
	}
	settings := ""
	if len(out.Repositories)+len(out.Services) > 0 {
		port := free(podGatewayPort, used)
		out.Gateway, out.Token = fmt.Sprintf("%s:%d", cfg.Loopback, port), secret.RandomText(43)
		j.Wait, j.Ports = append(j.Wait, out.Gateway), append(j.Ports, port)
		g, err := out.gateway("", nil, nil)
		if err != nil {
			return nil, &task.FinalError{Err: err}
		}
		if len(out.Repositories) > 0 {
			settings = g.Settings(out.Gateway)
		}
	}
	job := jobOf(t, vars)
	job.Locate(task.GatewayURL, "http://"+out.Gateway)
	job.GitSettings, job.Inherit, job.Image, job.Bounded = settings, true, cfg.Image, true
	j.Job = *job
	p := &Pod{}
	var err error
	if p.Job, err = packed(j); err == nil && len(out.Hosts)+len(out.Repositories)+len(out.Services) > 0 {
		p.Egress, err = packed(out)
	}
	return p, err
}

// Counts tells whether the way out of a pod with the task counts what requests to models use.
func Counts(t *task.Task) bool {
	return t.Grants != nil && slices.ContainsFunc(t.Services, func(s task.Service) bool { return s.Provider != "" })
}

// inPod refuses an address to which the way out of a pod would send a credential unencrypted within the
// pod: the agent has the same loopback, and could take the port.
func inPod(what, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return nil //nolint:nilerr // the gateway says what is wrong with it
	}
	if addr, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && addr.Unmap().IsLoopback() {
		return inside.Never("the address %s of the %s is within the pod, where the agent could be given the secret: give it an https:// address", task.ShownURL(address), what)
	}
	return nil
}

// mintedKey names a repository in the file of tokens.
func mintedKey(r task.Repository) string { return fmt.Sprintf("%s %v", r.URL, r.ReadOnly) }

// PodTokens mints the credentials of a task that end while its run goes on, as the content of the
// file TokensFile beside the file of the way out. renew is when they must be replaced. Without
// such credentials, there is no content.
func PodTokens(ctx context.Context, t *task.Task) (content []byte, renew time.Time, err error) {
	tokens := make(map[string]string)
	for _, r := range t.Repositories {
		if !t.Mints(r) {
			continue
		}
		m, err := t.Mint(ctx, r)
		if err != nil {
			return nil, renew, err
		}
		if tokens[mintedKey(r)] = m.Token.Reveal(); renew.IsZero() || m.Renew.Before(renew) {
			renew = m.Renew
		}
	}
	if len(tokens) == 0 {
		return nil, renew, nil
	}
	content, err = json.Marshal(tokens)
	return content, renew, err
}

// TokensFile is the name of the file of tokens.
const TokensFile = "tokens"

// podToken reads a token from the file in the folder. The file changes while the run goes on.
func podToken(folder, key string) (secret.Value, error) {
	text, err := os.ReadFile(filepath.Join(folder, TokensFile))
	if err != nil {
		return secret.Value{}, fmt.Errorf("the tokens of the run cannot be read: %w", err)
	}
	var tokens map[string]string
	if err := json.Unmarshal(text, &tokens); err != nil {
		return secret.Value{}, errors.New("the tokens of the run cannot be read")
	}
	return secret.New(tokens[key]), nil
}

// packed is the value as compressed JSON: a cluster keeps at most 1 MiB in one secret.
func packed(value any) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	err := errors.Join(json.NewEncoder(z).Encode(value), z.Close())
	return b.Bytes(), err
}

// gateway makes the gateway of the run. folder has the file of tokens.
func (w *podWayOut) gateway(folder string, meter task.Meter, report func(event.Event)) (*gateway.Gateway, error) {
	cfg := gateway.GatewayConfig{
		Token: w.Token, Pushes: w.Pushes, Meter: meter,
		Report: func(e event.Egress) { report(e) }, Pushed: func(e event.Push) { report(e) }, Pulled: func(e event.Request) { report(e) }, Tell: func(e event.Status) { report(e) },
	}
	for _, s := range w.Services {
		s.Header = make(map[string]secret.Value, len(s.Added))
		for name, text := range s.Added {
			s.Header[name] = secret.New(text)
		}
		cfg.Services = append(cfg.Services, s.Service)
	}
	for _, r := range w.Repositories {
		to := gateway.Repository{URL: r.URL, Secret: r.Secret, Credential: secret.New(r.Credential), ReadOnly: r.ReadOnly, Branch: r.Branch}
		if r.Minted != "" {
			to.Mint = func(context.Context) (task.Minted, error) {
				token, err := podToken(folder, r.Minted)
				return task.Minted{Token: token}, err
			}
		}
		cfg.Repositories = append(cfg.Repositories, to)
	}
	return gateway.NewGateway(cfg)
}

// Supervise is the hidden command of this program that runs in containers and walls: the
// supervisor, or in a pod the server of the way out. It returns the exit status.
func Supervise(args []string) int {
	if len(args) == 3 && args[0] == podEgress {
		return serveEgress(args[1], args[2])
	}
	return inside.Supervise(args)
}

// serveEgress serves the way out until SIGTERM. It reports contacts and pushes of the run by the log.
func serveEgress(file, counts string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var w podWayOut
	if err := inside.Unpack(file, &w); err != nil {
		return inside.Said(fmt.Errorf("the way out of the run cannot be read: %w", err))
	}
	lines, err := inside.NewLineWriter(os.Stdout, w.Key, nil)
	if err != nil {
		return inside.Said(err)
	}
	frames := &inside.FrameWriter{W: lines}
	report := func(c event.Event) {
		if told, err := inside.Encode(c); err == nil {
			_ = frames.Tell(inside.FrameEvent, told) // without a reader, nobody wants it
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
		p, err := gateway.New(gateway.Config{Hosts: w.Hosts, Report: func(e event.Egress) { report(e) }})
		if err := add(w.Proxy, p, err); err != nil {
			return inside.Said(fmt.Errorf("the proxy of the run: %w", err))
		}
	}
	end := func() {}
	if w.Gateway != "" {
		w.Pushes.Stage = stageTo(frames)
		var meter task.Meter
		if meter, end, err = w.meter(filepath.Dir(file), counts, frames); err != nil {
			return inside.Said(err)
		}
		g, err := w.gateway(filepath.Dir(file), meter, report)
		if err := add(w.Gateway, g, err); err != nil {
			return inside.Said(fmt.Errorf("the gateway of the run: %w", err))
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
		return inside.Said(err) // the container is started again
	}
	end()
	return 0
}

// stageTo is task.Pushes.Stage in a pod. The worker keeps the pack, and finds it by its digest when the event of
// the push comes (receiver.staged).
func stageTo(frames *inside.FrameWriter) func(context.Context, io.Reader) (output.Pack, error) {
	return func(_ context.Context, content io.Reader) (output.Pack, error) {
		sum := sha256.New()
		err := frames.Artifact(event.Artifact{}, io.TeeReader(content, sum))
		return output.Pack{SHA256: hex.EncodeToString(sum.Sum(nil))}, err
	}
}

// meter is the meter of the gateway, and what ends it; without one, nobody counts.
func (w *podWayOut) meter(folder, counts string, frames *inside.FrameWriter) (task.Meter, func(), error) {
	if w.Meter == nil {
		return nil, func() {}, nil
	}
	prices, err := price.Read(w.Meter.Prices)
	if err != nil {
		return nil, nil, fmt.Errorf("the prices of models cannot be read: %w", err)
	}
	book, err := newPodBook(*w.Meter, folder, counts, func(c task.Counted) { _ = frames.Tell(inside.FrameCounted, c) }) // unread, what is granted counts
	if err != nil {
		return nil, nil, err
	}
	return &metering.Meter{Prices: prices, Now: time.Now, Book: book}, book.end, nil
}

// Bounded returns the limits of a task: its own, or else those of the operator.
func Bounded(own, operator task.Limits) task.Limits { return limits.Or(own, operator) }

// PodMemory is the memory in bytes that the supervisor in a pod uses beside the run.
const PodMemory = limits.OwnMemory

// Weaker tells whether an isolation is weaker than the least isolation that a definition accepts.
func Weaker(isolation, least string) bool {
	return slices.Index(strengths, isolation) < slices.Index(strengths, least)
}
