package testserver

// Kubernetes is an API server of Kubernetes with its etcd, in one process:
// what is done to the server is done to both. There are no nodes and no
// controllers. It is a heavy kind.
//
// Its URL is one that kubestore opens. The file that it names is a kubeconfig
// with the contexts admin, the default; guest, who may do nothing if the setting
// authorization-mode is RBAC; and stranger, whose token is wrong.
const Kubernetes Kind = "kubernetes"
