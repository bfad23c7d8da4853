package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/server/run"
)

// An image that this machine has is looked into by this program, which starts in it as it does
// for a run, without a network, and says which programs a run would not find.

// looks are what is known of images, by their names.
type looks struct {
	mu    sync.Mutex
	known map[string]*looked
}

type looked struct {
	id    string // of the image; empty: it is not on this machine, or the engine does not say
	away  bool   // it is not on this machine
	fails bool   // this program did not start in it
	lacks map[string]bool
	again time.Time // when to ask for the id
}

// unknownImage matches what engines say of an image that this machine does not have.
var unknownImage = regexp.MustCompile(`(?i)no such image|image not known`)

// lookTime bounds a look, for which an apply or a page waits.
const lookTime = 10 * time.Second

// lacks tells which of the programs are known not to be in the image, and whether the image is
// on this machine.
func (e *Executor) lacks(image string, programs []string) (lacking []string, here bool) {
	g, err := e.engine()
	if err != nil {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	e.looks.mu.Lock()
	defer e.looks.mu.Unlock()
	l := e.looks.known[image]
	if l == nil {
		l = &looked{}
		e.looks.known[image] = l
	}
	if !e.now().Before(l.again) {
		id, err := g.do(ctx, "image", "inspect", "--format", "{{.Id}}", image)
		if err != nil || id != l.id || l.fails {
			*l = looked{id: id, lacks: make(map[string]bool)}
			l.away = err != nil && unknownImage.MatchString(err.Error())
		}
		l.again = e.now().Add(lookAgain)
	}
	if ask := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { _, is := l.lacks[p]; return is }); l.id != "" && !l.fails && len(ask) > 0 {
		l.fails = e.look(ctx, g, l, ask) != nil
	}
	for _, p := range programs {
		if l.lacks[p] {
			lacking = append(lacking, p)
		}
	}
	return lacking, !l.away
}

// look asks the image for the programs.
func (e *Executor) look(ctx context.Context, g *engine, l *looked, programs []string) error {
	argv := e.closed(g, e.limitsOf(&run.Task{}))
	for _, path := range e.granted(nil) {
		argv = append(argv, bind(path, ",readonly"))
	}
	argv = append(append(argv, strings.Fields(e.containers.Options)...), "--network=none", l.id, SuperviseCommand, lookInside)
	cmd := exec.CommandContext(ctx, self, append([]string{SuperviseCommand, outside}, append(argv, programs...)...)...)
	said := &lockedBuffer{} // an image can say anything
	cmd.Stdout, cmd.Dir, cmd.WaitDelay, cmd.Env = said, "/", time.Second, engineEnvironment()
	err := cmd.Run()
	answers := strings.TrimSpace(said.String())
	if err == nil && len(answers) != len(programs) {
		err = fmt.Errorf("%d answers for %d programs", len(answers), len(programs))
	}
	if err != nil {
		return err
	}
	for i, p := range programs {
		l.lacks[p] = answers[i] == lacksIt
	}
	return nil
}

// lookInside is the argument of this program in an image that is looked into; names of programs
// follow. It prints hasIt or lacksIt for each.
const (
	lookInside = "look"
	hasIt      = '+'
	lacksIt    = '-'
)

// sayLacking is the body of `__supervise look PROGRAM …`.
func sayLacking(programs []string) int {
	env := inherit(os.Environ(), nil)
	var answers []byte
	for _, p := range programs {
		answer := byte(hasIt)
		if find(p, "/", env) == "" {
			answer = lacksIt
		}
		answers = append(answers, answer)
	}
	fmt.Println(string(answers))
	return 0
}
