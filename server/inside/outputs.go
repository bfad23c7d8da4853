package inside

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// What an agent asks the server to do (SPEC 23.2) comes as calls of tools or as files in a folder.
// Each is checked and answered here, so that the agent can correct itself. The worker checks again,
// because it does not trust what comes from within the walls.

func (f Folder) outputs() string { return filepath.Join(f.Root, "outputs") }

const (
	outputsEvery = 100 * time.Millisecond // how often the folder is read
	// outputsPatience is how long a file may lack its end: a script may write it in parts.
	outputsPatience = 2 * time.Second
	requestSuffix   = ".json"
	resultSuffix    = ".result.json"
	maxRefusals     = 200 // requests that are answered with what is wrong; others get no answer
	headerTime      = 30 * time.Second
)

// asks takes the requests of an agent.
type asks struct {
	allowed  output.Allowed
	add      func(event.Event)
	token    string // without which nobody may use the tools
	listener net.Listener
	root     *os.Root
	stop     chan struct{}
	group    sync.WaitGroup

	mu       sync.Mutex
	made     []output.Request
	refused  int
	answered map[string]bool // by the name of the file; only the reader of the folder uses it
}

// outputs prepares for requests; nil: the agent may make none. The job's files, variables and command
// get the address of the tools.
func (j *Job) outputs(s *supervising) (*asks, error) {
	if len(j.Outputs) == 0 {
		return nil, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("connecting the tools of the run: %w", err)
	}
	j.Locate(task.OutputsURL, "http://"+l.Addr().String()+"/")
	return &asks{allowed: j.Outputs, add: s.add, token: variable(j.Env, task.OutputsToken), listener: l, stop: make(chan struct{}), answered: make(map[string]bool)}, nil
}

// begin takes requests until end is called, which takes the last ones. What ran before the agent, such
// as a stranger's setup commands, asks for nothing.
func (a *asks) begin(f Folder) (end func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	if err := errors.Join(RemoveAll(f.outputs()), os.Mkdir(f.outputs(), 0o700)); err != nil {
		return nil, err
	}
	if a.root, err = os.OpenRoot(f.outputs()); err != nil {
		return nil, err
	}
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: headerTime}
	a.group.Go(func() { _ = server.Serve(a.listener) }) // ends with Close
	a.group.Go(a.watch)
	return func() {
		_ = server.Close()
		close(a.stop)
		a.group.Wait()
		a.read(true)
		_ = a.root.Close()
	}, nil
}

// close gives up the address of the tools.
func (a *asks) close() {
	if a != nil {
		_ = a.listener.Close()
	}
}

// variable is the value of a variable of an environment.
func variable(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, is := strings.CutPrefix(v, name+"="); is {
			return value
		}
	}
	return ""
}

// Locate puts an address wherever another text stands for it.
func (j *Job) Locate(stands, address string) {
	replace := func(text string) string { return strings.ReplaceAll(text, stands, address) }
	for _, list := range [][]string{j.Env, j.Command} {
		for i := range list {
			list[i] = replace(list[i])
		}
	}
	j.Files = slices.Clone(j.Files)
	for i := range j.Files {
		j.Files[i].Data = []byte(replace(string(j.Files[i].Data)))
	}
}

// take checks a request, and reports it. The error is for the agent.
func (a *asks) take(r output.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.allowed.Check(r, a.made)
	if err == nil {
		a.made = append(a.made, r)
		a.add(event.Request{Name: r.Kind, Request: r.JSON()})
		return nil
	}
	if a.refused++; a.refused <= maxRefusals {
		a.add(event.Request{Name: r.Kind, Request: r.JSON(), Refused: err.Error()})
	}
	return err
}

// handler serves the tools to whoever has the token of the run: without walls around its network,
// other processes of the machine reach the address, too.
func (a *asks) handler() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "triphammer", Version: "1"}, &mcp.ServerOptions{
		Instructions: "With these tools you ask the server of this run to do something in its name. It does so after the run has succeeded.",
	})
	for _, k := range output.Kinds {
		b, may := a.allowed[k.Name]
		if !may {
			continue
		}
		s.AddTool(&mcp.Tool{Name: k.Name, Description: k.Describe(b), InputSchema: k.Tool(b)}, func(_ context.Context, call *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r, err := output.Parse(call.Params.Arguments)
			if r.Kind = k.Name; err == nil {
				err = a.take(r)
			}
			if err != nil {
				return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "noted: the server does this when the run has succeeded"}}}, nil
		})
	}
	tools := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: 2 * output.MaxBytes})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+a.token)) != 1 {
			http.Error(w, "this address is for the agent of a run", http.StatusUnauthorized)
			return
		}
		tools.ServeHTTP(w, r)
	})
}

// watch reads the folder again and again.
func (a *asks) watch() {
	tick := time.NewTicker(outputsEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-tick.C:
			a.read(false)
		}
	}
}

// read takes the requests in new files, in the order of their names. last tells that no file grows any more.
func (a *asks) read(last bool) {
	dir, err := a.root.Open(".")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(2 * (maxRefusals + output.MaxRequests)) // an agent that writes more gets no answers
	_ = dir.Close()
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasSuffix(name, requestSuffix) || strings.HasSuffix(name, resultSuffix) || a.answered[name] || len(a.answered) > maxRefusals+output.MaxRequests {
			continue
		}
		if err, whole := a.file(name, last); whole {
			a.answered[name] = true
			a.answer(strings.TrimSuffix(name, requestSuffix)+resultSuffix, err)
		}
	}
}

// file takes the request in a file. whole is false while the file may lack its end.
func (a *asks) file(name string, last bool) (err error, whole bool) {
	info, err := a.root.Lstat(name)
	if err != nil {
		return nil, false // it is gone
	}
	if !info.Mode().IsRegular() {
		return errors.New("a request is a plain file"), true
	}
	file, err := a.root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = file.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(file, output.MaxBytes+1))
	if err != nil {
		return nil, false
	}
	r, err := output.Parse(data)
	if err != nil {
		return err, last || time.Since(info.ModTime()) > outputsPatience
	}
	return a.take(r), true
}

// outputResult is the answer to a request in a file.
type outputResult struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// answer writes how a request was taken. A file of the name is replaced, and never followed.
func (a *asks) answer(name string, wrong error) {
	result := outputResult{OK: wrong == nil}
	if wrong != nil {
		result.Error = wrong.Error() + "; write the corrected request to a new file: this file is not read again"
	}
	data, _ := json.Marshal(result) // texts always encode
	const temp = ".answer"
	_ = a.root.RemoveAll(temp)
	file, err := a.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = file.Write(append(data, '\n'))
		err = errors.Join(err, file.Close())
	}
	if err == nil {
		_ = a.root.Rename(temp, path.Base(name)) // an agent that puts a folder there gets no answer
	}
}
