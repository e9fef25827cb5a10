// Command consul is the Consul agent, built from its Go module so that the
// tests use the version that go.mod pins. It is a module of its own: nobody who
// builds Baton or its other test servers compiles it, and its licence, which is
// not Baton's, concerns this program alone.
package main

import (
	"io"
	"log"
	"os"

	"github.com/hashicorp/consul/command/agent"
	"github.com/hashicorp/consul/command/cli"
	mcli "github.com/mitchellh/cli"
)

// main takes the arguments of `consul agent`.
func main() {
	log.SetOutput(io.Discard)
	ui := &cli.BasicUI{BasicUi: mcli.BasicUi{Writer: os.Stdout, ErrorWriter: os.Stderr}}
	os.Exit(agent.New(ui).Run(os.Args[1:]))
}
