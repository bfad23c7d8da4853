// Package sockettest plays Slack's side of Socket Mode, by
// https://docs.slack.dev/apis/events-api/using-socket-mode, for tests.
package sockettest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// Ticket is the secret part of the addresses that Slack names.
const Ticket = "ticket-that-nobody-may-see"

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// Slack is a server that offers connections. The functions can be set until the first request.
type Slack struct {
	API string // its API, for apiURL
	// Answer answers a request for an address: text is the body of the answer. If it is nil, or
	// the status is 0, Slack names its own address.
	Answer func(token string, asked int) (status int, text string)
	// Greet takes a new connection, the first is 1. It returns false if the connection is not to be
	// used. If it is nil, Slack says hello.
	Greet func(n int, ws *websocket.Conn) bool

	t     testing.TB
	peers chan *Peer

	mu                sync.Mutex
	asked, made, open int
	calls             []Call
}

// Call is a call of a method that writes in channels.
type Call struct {
	Method string
	Body   map[string]any
	TS     string // of the message
}

// Hello is Slack's greeting.
const Hello = `{"type":"hello","num_connections":1,"debug_info":{"host":"applink-1","approximate_connection_time":18060},"connection_info":{"app_id":"A1"}}`

// New starts a Slack that ends with the test.
func New(t testing.TB) *Slack {
	s := &Slack{t: t, peers: make(chan *Peer, 100)}
	var ended sync.WaitGroup
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/apps.connections.open", s.ask)
	mux.HandleFunc("/api/", s.call)
	mux.HandleFunc("GET /link", func(w http.ResponseWriter, r *http.Request) {
		ended.Add(1)
		defer ended.Done()
		s.connect(w, r)
	})
	server := httptest.NewServer(mux)
	s.API = server.URL + "/api"
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		ended.Wait()
	})
	return s
}

func (s *Slack) ask(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked++
	n := s.asked
	s.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.Answer != nil {
		if status, text := s.Answer(token, n); status != 0 {
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, text)
			return
		}
	}
	_, _ = fmt.Fprintf(w, `{"ok":true,"url":"ws://%s/link?ticket=%s"}`, r.Host, Ticket)
}

// call takes any other method. A message gets the number of its call as its timestamp.
func (s *Slack) call(w http.ResponseWriter, r *http.Request) {
	c := Call{Method: strings.TrimPrefix(r.URL.Path, "/api/")}
	_ = json.NewDecoder(r.Body).Decode(&c.Body) // methods that read have none
	s.mu.Lock()
	c.TS = fmt.Sprintf("%d.0", len(s.calls))
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	_, _ = fmt.Fprintf(w, `{"ok":true,"ts":%q,"user_id":"UBOT","messages":[]}`, c.TS)
}

// Calls are the calls of a method until now.
func (s *Slack) Calls(method string) (all []Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.Method == method {
			all = append(all, c)
		}
	}
	return all
}

func (s *Slack) connect(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	if r.URL.Query().Get("ticket") != Ticket {
		s.t.Error("a connection without its ticket")
	}
	s.mu.Lock()
	s.made++
	s.open++
	n := s.made
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	greet := s.Greet
	if greet == nil {
		greet = func(_ int, ws *websocket.Conn) bool {
			return ws.Write(context.Background(), websocket.MessageText, []byte(Hello)) == nil
		}
	}
	if !greet(n, ws) {
		return
	}
	ctx, kill := context.WithCancel(r.Context())
	defer kill()
	p := &Peer{WS: ws, t: s.t, kill: kill, acks: make(chan string, 1000), Closed: make(chan struct{})}
	defer close(p.Closed)
	s.peers <- p
	for {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var ack struct {
			ID string `json:"envelope_id"`
		}
		if err := json.Unmarshal(text, &ack); err != nil || ack.ID == "" {
			s.t.Errorf("an acknowledgement that Slack does not know: %s", text)
		}
		p.acks <- ack.ID
	}
}

// Asked is how often an address was asked for, and Open how many connections are open.
func (s *Slack) Asked() int { return s.count(&s.asked) }

// Open is the number of open connections.
func (s *Slack) Open() int { return s.count(&s.open) }

func (s *Slack) count(what *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *what
}

// Next waits for the next connection that was greeted.
func (s *Slack) Next() *Peer {
	s.t.Helper()
	select {
	case p := <-s.peers:
		return p
	case <-time.After(patience):
		s.t.Fatal("nobody connects")
		return nil
	}
}

// Peer is one connection.
type Peer struct {
	WS     *websocket.Conn
	Closed chan struct{} // closed with the connection

	t    testing.TB
	kill context.CancelFunc
	acks chan string
}

// Kill ends the connection at once.
func (p *Peer) Kill() { p.kill() }

// Send sends a message.
func (p *Peer) Send(text string) {
	p.t.Helper()
	if err := p.WS.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		p.t.Error(err)
	}
}

// Envelope sends an envelope.
func (p *Peer) Envelope(id, kind, payload string) {
	p.t.Helper()
	p.Send(fmt.Sprintf(`{"envelope_id":%q,"type":%q,"accepts_response_payload":false,"retry_attempt":0,"retry_reason":"","payload":%s}`, id, kind, payload))
}

// Acked waits for the next acknowledgement, and returns the envelope's id; empty: the connection is
// closed.
func (p *Peer) Acked() string {
	p.t.Helper()
	select {
	case id := <-p.acks:
		return id
	case <-p.Closed:
		select {
		case id := <-p.acks:
			return id
		default:
			return ""
		}
	case <-time.After(patience):
		p.t.Fatal("no acknowledgement")
		return ""
	}
}

// End waits for the end of the connection.
func (p *Peer) End() {
	p.t.Helper()
	select {
	case <-p.Closed:
	case <-time.After(patience):
		p.t.Fatal("the connection stays open")
	}
}
