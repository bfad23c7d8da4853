//go:build full

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// machine is a network namespace in which a process of a fleet runs, as if on a machine of
// its own. Two cables lead to it: one from the store, and one from senders. The addresses are
// those that RFC 2544 gives to tests of networks.
type machine struct {
	number  int
	space   string // name of the namespace
	store   string // address of the store, as the machine sees it
	address string // of the machine, as senders see it
	cables  [2]cable
}

// cable has an end here, and one on the machine.
type cable struct{ here, there, hereAddress, thereAddress string }

// machineNetwork has the addresses of all machines.
const machineNetwork = "198.18.0.0/15"

// newMachines makes machines, until the end of the test. Only root can.
func newMachines(t *testing.T, count int) []*machine {
	t.Helper()
	var all []*machine
	for n := range count {
		m := &machine{number: n, space: fmt.Sprintf("triphammer-%d-%d", os.Getpid(), n)}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", m.space).Run() }) // its cables go with it
		commands := []string{"ip netns add " + m.space, "ip -n " + m.space + " link set lo up"}
		for i, kind := range []string{"d", "s"} {
			c := &m.cables[i]
			c.here, c.there = fmt.Sprintf("th%s%d-%d", kind, n, os.Getpid()%100000), fmt.Sprintf("%s0", kind)
			c.hereAddress, c.thereAddress = fmt.Sprintf("198.18.%d.%d", n, 4*i+1), fmt.Sprintf("198.18.%d.%d", n, 4*i+2)
			commands = append(commands,
				fmt.Sprintf("ip link add %s type veth peer name %s netns %s", c.here, c.there, m.space),
				fmt.Sprintf("ip address add %s/30 dev %s", c.hereAddress, c.here),
				fmt.Sprintf("ip -n %s address add %s/30 dev %s", m.space, c.thereAddress, c.there),
				fmt.Sprintf("ip link set %s up", c.here),
				fmt.Sprintf("ip -n %s link set %s up", m.space, c.there))
		}
		for _, command := range commands {
			if err := tool(command); err != nil {
				t.Fatalf("this test makes network namespaces, which needs root and the package iproute2: %v", err)
			}
		}
		m.store, m.address = m.cables[0].hereAddress, m.cables[1].thereAddress
		all = append(all, m)
	}
	return all
}

func tool(command string) error {
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

// nobody is a hardware address that no machine has: what is sent to it is lost, and nobody
// hears of it.
const nobody = "02:00:00:00:00:01"

// ways in which a machine is cut off from the store.
const (
	cutBoth = iota
	cutThere
	cutBack
	cutWays
)

// cut lets packets between the machine and the store vanish: both ways, or those to the store
// alone, or those from it. Senders still reach the machine.
func (m *machine) cut(way int) error {
	c := &m.cables[0]
	var errs []error
	if way != cutBack {
		errs = append(errs, tool(fmt.Sprintf("ip -n %s neighbor replace %s lladdr %s nud permanent dev %s", m.space, c.hereAddress, nobody, c.there)))
	}
	if way != cutThere {
		errs = append(errs, tool(fmt.Sprintf("ip neighbor replace %s lladdr %s nud permanent dev %s", c.thereAddress, nobody, c.here)))
	}
	return errors.Join(errs...)
}

// heal ends a cut of any way.
func (m *machine) heal() {
	c := &m.cables[0]
	_ = tool(fmt.Sprintf("ip -n %s neighbor delete %s dev %s", m.space, c.hereAddress, c.there)) // it may not be cut this way
	_ = tool(fmt.Sprintf("ip neighbor delete %s dev %s", c.thereAddress, c.here))
}

// inside lets a command run on the machine.
func (m *machine) inside(cmd *exec.Cmd) error {
	ip, err := exec.LookPath("ip")
	if err != nil {
		return err
	}
	cmd.Args = append([]string{ip, "netns", "exec", m.space, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = ip
	return nil
}
