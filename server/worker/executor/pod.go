package executor

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"triphammer/server/inside"
	"triphammer/server/inside/limits"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/gateway"
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

// EgressCommand are the arguments of this program in the container that serves the way out.
func EgressCommand(file string) []string {
	return []string{inside.SuperviseCommand, podEgress, file}
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
}

type podRepository struct {
	URL        string `json:"url"`
	Secret     string `json:"secret"`
	Credential string `json:"credential,omitempty"`
	Minted     string `json:"minted,omitempty"` // key of the credential in the file of tokens; empty: it is Credential
	ReadOnly   bool   `json:"read_only,omitempty"`
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
	out := podWayOut{Key: cfg.Key}
	j := inside.PodJob{Key: cfg.Key, Grace: cfg.Grace, Limited: n.Limited()}
	if len(n.Hosts) > 0 {
		port := free(podProxyPort, used)
		out.Hosts, out.Proxy = n.Hosts, fmt.Sprintf("%s:%d", cfg.Loopback, port)
		maps.Copy(vars, gateway.Environ(out.Proxy))
		j.Wait, j.Ports = append(j.Wait, out.Proxy), append(j.Ports, port)
	}
	for _, r := range t.Repositories {
		if filepath.IsAbs(r.URL) || strings.HasPrefix(r.URL, "file:") {
			return nil, inside.Never("the repository %s is a folder of another machine than that of the run: give it a URL", r.URL)
		}
		if r.Secret != "" {
			minted := ""
			if t.Mints(r) {
				minted = mintedKey(r)
			}
			out.Repositories = append(out.Repositories, podRepository{r.URL, r.Secret, t.Credentials[r.Secret].Reveal(), minted, r.ReadOnly})
		}
	}
	settings := ""
	if len(out.Repositories) > 0 {
		port := free(podGatewayPort, used)
		out.Gateway, out.Token = fmt.Sprintf("%s:%d", cfg.Loopback, port), secret.RandomText(43)
		j.Wait, j.Ports = append(j.Wait, out.Gateway), append(j.Ports, port)
		g, err := out.gateway("", nil)
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

// gateway makes the gateway to the private repositories. folder has the file of tokens.
func (w *podWayOut) gateway(folder string, report func(event.Egress)) (*gateway.Gateway, error) {
	cfg := gateway.GatewayConfig{Token: w.Token, Report: report}
	for _, r := range w.Repositories {
		to := gateway.Repository{URL: r.URL, Secret: r.Secret, Credential: secret.New(r.Credential), ReadOnly: r.ReadOnly}
		if r.Minted != "" {
			to.Mint = func(context.Context) (secret.Value, error) { return podToken(folder, r.Minted) }
		}
		cfg.Repositories = append(cfg.Repositories, to)
	}
	return gateway.NewGateway(cfg)
}

// Supervise is the hidden command of this program that runs in containers and walls: the
// supervisor, or in a pod the server of the way out. It returns the exit status.
func Supervise(args []string) int {
	if len(args) == 2 && args[0] == podEgress {
		return serveEgress(args[1])
	}
	return inside.Supervise(args)
}

// serveEgress serves the way out until SIGTERM. It reports the contacts of the run by the log.
func serveEgress(file string) int {
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
	report := func(c event.Egress) {
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
		p, err := gateway.New(gateway.Config{Hosts: w.Hosts, Report: report})
		if err := add(w.Proxy, p, err); err != nil {
			return inside.Said(fmt.Errorf("the proxy of the run: %w", err))
		}
	}
	if w.Gateway != "" {
		g, err := w.gateway(filepath.Dir(file), report)
		if err := add(w.Gateway, g, err); err != nil {
			return inside.Said(fmt.Errorf("the gateway of the run to its repositories: %w", err))
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
		return inside.Said(err)
	}
	return 0
}

// Bounded returns the limits of a task: its own, or else those of the operator.
func Bounded(own, operator task.Limits) task.Limits { return limits.Or(own, operator) }

// PodMemory is the memory in bytes that the supervisor in a pod uses beside the run.
const PodMemory = limits.OwnMemory

// Weaker tells whether an isolation is weaker than the least isolation that a definition accepts.
func Weaker(isolation, least string) bool {
	return slices.Index(strengths, isolation) < slices.Index(strengths, least)
}
