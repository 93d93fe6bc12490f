// Builds a current etcd for the tests, because Debian's is older (./test says where it is kept).
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
