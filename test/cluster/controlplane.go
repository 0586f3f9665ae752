package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listener-operator/listener-operator/test/cluster/nodeinit/spec"
)

// apiTimeout is how long the API server may take to become ready.
const apiTimeout = 2 * time.Minute

// auditLogMegabytes is the size at which the API server starts a new audit log. A test cluster does not reach it.
const auditLogMegabytes = 1000

// etcd stores the cluster's objects. Its data need not survive a crash of the machine.
func (c *Cluster) etcd() daemon {
	host := c.HostIP()
	return daemon{"etcd", []string{
		c.tool("etcd", "etcd"),
		"--name=" + c.name,
		"--data-dir=" + c.etcdDir(),
		"--unsafe-no-fsync",
		"--listen-client-urls=https://" + host + ":2379",
		"--advertise-client-urls=https://" + host + ":2379",
		"--listen-peer-urls=http://" + host + ":2380",
		"--initial-advertise-peer-urls=http://" + host + ":2380",
		"--initial-cluster=" + c.name + "=http://" + host + ":2380",
		"--cert-file=" + c.pkiFile("etcd.crt"),
		"--key-file=" + c.pkiFile("etcd.key"),
		"--client-cert-auth",
		"--trusted-ca-file=" + c.pkiFile("ca.crt"),
		"--log-level=warn",
	}}
}

// etcdDir is the directory of etcd's data.
func (c *Cluster) etcdDir() string { return filepath.Join(c.control().dir, "etcd") }

// Flags of the API server that OpenShift sets itself.
const (
	authorizationFlag = "authorization-mode"
	admissionFlag     = "enable-admission-plugins"
)

// apiServer is the API server. OpenShift's reads its flags from a file.
func (c *Cluster) apiServer() daemon {
	const name = "kube-apiserver"
	if c.OpenShift() {
		return daemon{name, []string{c.tool(openShiftTools, name), "--openshift-config=" + c.openShiftConfigFile()}}
	}
	return daemon{name, append([]string{c.tool("kubernetes", name)}, c.apiServerFlags()...)}
}

// apiServerFlags are the flags of the API server, on the node network's host address.
func (c *Cluster) apiServerFlags() []string {
	host := c.HostIP()
	return []string{
		"--etcd-servers=https://" + host + ":2379",
		"--etcd-cafile=" + c.pkiFile("ca.crt"),
		"--etcd-certfile=" + c.pkiFile("etcd.crt"),
		"--etcd-keyfile=" + c.pkiFile("etcd.key"),
		"--bind-address=" + host,
		"--advertise-address=" + host,
		"--secure-port=6443",
		"--service-cluster-ip-range=" + c.subnets.services().String(),
		"--client-ca-file=" + c.pkiFile("ca.crt"),
		"--tls-cert-file=" + c.pkiFile("apiserver.crt"),
		"--tls-private-key-file=" + c.pkiFile("apiserver.key"),
		"--cert-dir=" + c.control().dir,
		"--kubelet-client-certificate=" + c.pkiFile("kubelet-client.crt"),
		"--kubelet-client-key=" + c.pkiFile("kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.pkiFile("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pkiFile("service-account.pub"),
		"--service-account-signing-key-file=" + c.pkiFile("service-account.key"),
		"--requestheader-client-ca-file=" + c.pkiFile("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pkiFile("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.pkiFile("front-proxy-client.key"),
		"--" + authorizationFlag + "=Node,RBAC",
		// OpenShift enables the second one: it requires a permission for owner references that block deletion.
		"--" + admissionFlag + "=NodeRestriction,OwnerReferencesPermissionEnforcement",
		// There is no kube-proxy on the host, so the API server connects to the Pods of webhooks directly.
		"--enable-aggregator-routing=true",
		"--allow-privileged=true",
		"--audit-policy-file=" + c.auditPolicyFile(),
		"--audit-log-path=" + c.AuditLog(),
		"--audit-log-maxsize=" + strconv.Itoa(auditLogMegabytes),
		// Pods leave a lost node after half a minute instead of five.
		"--default-not-ready-toleration-seconds=30",
		"--default-unreachable-toleration-seconds=30",
	}
}

// controllerManager runs all controllers that need no cloud: a LoadBalancer Service gets no address.
func (c *Cluster) controllerManager() daemon {
	return c.controller("controller-manager",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.pkiFile("service-account.key"),
		"--root-ca-file="+c.pkiFile("ca.crt"),
		"--cluster-signing-cert-file="+c.pkiFile("ca.crt"),
		"--cluster-signing-key-file="+c.pkiFile("ca.key"),
		"--cluster-cidr="+c.subnets.pods().String(),
		"--allocate-node-cidrs=false",
		"--flex-volume-plugin-dir="+filepath.Join(c.control().dir, "volume-plugins"),
		// A lost node is detected after this time instead of the default of 50 seconds.
		"--node-monitor-grace-period=16s",
		"--node-monitor-period=2s",
	)
}

// scheduler assigns Pods to nodes.
func (c *Cluster) scheduler() daemon {
	return c.controller("scheduler")
}

// controller returns a program that acts on objects, with the options that all of them have in addition to its own.
func (c *Cluster) controller(name string, options ...string) daemon {
	program, config := "kube-"+name, c.kubeconfigOf(name)
	return daemon{program, append([]string{
		c.tool("kubernetes", program),
		"--kubeconfig=" + config,
		"--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=" + c.HostIP(),
		"--cert-dir=" + c.control().dir,
		"--leader-elect=false",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}, options...)}
}

// registry is the image registry.
func (c *Cluster) registry() daemon {
	return daemon{"registry", []string{
		filepath.Join(c.binDir(), "registry"),
		"-address=" + c.Registry(),
		"-dir=" + filepath.Join(c.control().dir, "registry"),
		"-certificate=" + c.pkiFile("registry.crt"),
		"-key=" + c.pkiFile("registry.key"),
		"-login=" + c.pkiFile(registryLogin),
	}}
}

// controlPlane lists the daemons of the control plane in the order in which they start.
func (c *Cluster) controlPlane() []daemon {
	all := []daemon{c.etcd(), c.registry(), c.apiServer(), c.controllerManager(), c.scheduler()}
	if c.OpenShift() {
		all = append(all, c.serviceCA(), c.policyController())
	}
	return all
}

// startControlPlane starts the control plane and waits for the API server.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	control := c.control()
	if _, ok, err := control.holder(); err != nil {
		return err
	} else if !ok {
		if err := control.start(ctx, spec.Machine{}); err != nil {
			return err
		}
	}
	if err := control.run(c.etcd(), c.registry(), c.apiServer()); err != nil {
		return err
	}
	if err := c.awaitAPI(ctx); err != nil {
		return err
	}
	if err := c.startOpenShift(ctx); err != nil {
		return err
	}
	// These exit if the API server takes long to start.
	return control.run(c.controllerManager(), c.scheduler())
}

// awaitAPI waits until the API server is ready, or has exited.
func (c *Cluster) awaitAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := until(ctx, func() (bool, error) {
		if c.apiReady(ctx) == nil {
			return true, nil
		}
		for _, d := range []daemon{c.etcd(), c.apiServer()} {
			if _, ok, err := c.control().find(d); err != nil {
				return false, err
			} else if !ok {
				return false, fmt.Errorf("%s has exited, see %s", d.name, c.control().logFile(d.name))
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	return nil
}

// errNotReady is returned when a component is not ready.
var errNotReady = errors.New("not ready")

// apiReady returns nil if the API server reports that it is ready.
func (c *Cluster) apiReady(ctx context.Context) error {
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.apiURL()+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("querying the API server: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("querying the API server: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("API server: %w", errNotReady)
	}
	return nil
}

// auditPolicyFile is the path of the API server's audit policy.
func (c *Cluster) auditPolicyFile() string {
	return filepath.Join(c.control().dir, "audit-policy.yaml")
}

// writeAuditPolicy writes the audit policy.
func (c *Cluster) writeAuditPolicy() error {
	return renderTo(c.auditPolicyFile(), "audit-policy.yaml", nil)
}

// pkiFile is the path of a certificate or key.
func (c *Cluster) pkiFile(name string) string { return filepath.Join(c.pkiDir(), name) }
