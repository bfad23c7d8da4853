package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"triphammer/server/run/task"
)

// Preflight implements task.Executor.
func (e *Executor) Preflight(t *task.Task) (task.Place, error) {
	w, warnings, err := e.wallFor(t)
	if err != nil {
		return task.Place{}, err
	}
	if len(t.Command) == 0 {
		return task.Place{}, errors.New("nothing says how to start the agent: give the environment a command, or set a harness")
	}
	place := task.Place{Isolation: w.name, Elsewhere: w.foreign, Warnings: warnings}
	if w.name == Container {
		place.Image = cmp.Or(t.DockerImage, e.containers.Image)
		place.Lacks = func(programs []string) ([]string, bool) {
			ctx, cancel := context.WithTimeout(context.Background(), e.looks.time)
			defer cancel()
			return e.lacks(ctx, place.Image, programs)
		}
	}
	return place, nil
}

// wallFor chooses the wall around a task: the wall of all runs, or a container if the task
// demands one (SPEC 14.2). warnings say which parts of the task do not act.
func (e *Executor) wallFor(t *task.Task) (w *wall, warnings []string, err error) {
	name, lacking := e.Isolation()
	if name != "" {
		w = e.wall
	}
	least := slices.Index(strengths, t.Isolation)
	inContainer := wallNamed(Container)
	if (t.DockerImage != "" || t.Isolation == Container) && (w == nil || w.strength < inContainer.strength) {
		switch err := e.readyFor(inContainer); {
		case err == nil:
			w = inContainer
		case t.Isolation == Container:
			return nil, nil, fmt.Errorf("the environment accepts no less isolation than %s, which this server cannot offer: %w", t.Isolation, err)
		default:
			warnings = append(warnings, fmt.Sprintf("the image %s is not used: %v", t.DockerImage, err))
		}
	}
	switch {
	case w == nil:
		return nil, nil, fmt.Errorf("no run starts here, because no walls can be put around it: %w. Cure one of these, or declare that agents may do "+
			"whatever the server's user may (--isolation none)", errors.Join(lacking...))
	case least > w.strength:
		return nil, nil, fmt.Errorf("the environment accepts no less isolation than %s, and this server has %s: change its isolation, or use a server that has more",
			t.Isolation, w.name)
	case t.Network.Or(e.network).Limited() && !w.networks:
		return nil, nil, fmt.Errorf("the environment limits the network, which the isolation %s of this server cannot do: change its network to on, or install bubblewrap", w.name)
	case w.name == Container && t.DockerImage == "" && e.containers.Image == "":
		return nil, nil, errors.New("nothing names the image of this run: set dockerImage in its environment, or --container-image of the server")
	}
	if t.DockerImage != "" && w.foreign {
		err = CheckImage(t.DockerImage)
	}
	return w, warnings, err
}

// readyFor prepares a wall that is not the wall of all runs.
func (e *Executor) readyFor(w *wall) error {
	if problem := w.problem(e); problem != "" {
		return errors.New(problem)
	}
	e.choosing.Lock()
	defer e.choosing.Unlock()
	if e.wall == nil {
		if err := e.ready(); err != nil {
			return err
		}
	}
	return e.copy(*w)
}
