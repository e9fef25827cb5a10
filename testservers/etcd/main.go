// Command etcd is the etcd server, built from its Go module so that the tests
// use the version that go.mod pins. It is a module of its own: nobody who
// builds Baton or its other test servers compiles a database.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
