// Package all makes every kind of store known to [baton.OpenStore], and links
// the clients of all of them. A program that knows which store it uses imports
// that one instead.
//
//	import _ "baton/store/all"
package all

import (
	// Each registers itself.
	_ "baton/store/consulstore"
	_ "baton/store/etcdstore"
	_ "baton/store/kubestore"
	_ "baton/store/pgstore"
	_ "baton/store/redisstore"
	_ "baton/store/remotestore"
	_ "baton/store/zkstore"
)
