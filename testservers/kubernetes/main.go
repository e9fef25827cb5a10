// Command kubernetes is an API server of Kubernetes and the etcd that it keeps
// everything in, in one process: they live, stop and die together. Both are
// built from their Go modules, in the versions that go.mod pins. It is a module
// of its own: nobody who builds Baton or its other test servers compiles it.
//
//	kubernetes DIR [flag of kube-apiserver...]
//
// DIR is where etcd keeps its data.
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: kubernetes DIR [flag of kube-apiserver...]")
	}
	address, err := startEtcd(os.Args[1])
	if err != nil {
		log.Fatalf("start etcd: %v", err)
	}
	command := app.NewAPIServerCommand()
	command.SetArgs(append([]string{"--etcd-servers=" + address}, os.Args[2:]...))
	os.Exit(cli.Run(command))
}

// startEtcd starts a cluster of one on a port that the kernel chooses. It ends
// with the process.
func startEtcd(dir string) (address string, err error) {
	anywhere := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	cfg.EnableGRPCGateway = false // it would look for etcd at the port that was asked for
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{anywhere}, []url.URL{anywhere}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return fmt.Sprintf("http://%s", etcd.Clients[0].Addr()), nil
	case err := <-etcd.Err():
		return "", err
	}
}
