//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/colinmarc/hdfs/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/maven"
)

// A client outside the cluster, which knows the address of the NameNode, writes files to all DataNodes, and reads them
// from each, while these and the NameNode restart, and DataNodes are added and removed, and lose their node.
func TestProductHDFS(t *testing.T) {
	s := newRecipe(t, maven.HDFSImage, maven.HDFS)
	s.provideDisks(maven.User, slices.Concat(claimsOf("data", "hdfs-namenode", 1), claimsOf("data", "hdfs-datanode", 4))...)
	s.Cleanup(func() {
		_ = api.Delete(context.Background(), &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "hdfs-datanode"}})
	})
	s.applyRecipe("hdfs")
	s.awaitReplicas("hdfs-namenode", 1)
	s.awaitReplicas("hdfs-datanode", 3)
	h := &hdfsOf{scenario: s}
	h.use("at first", 3)

	s.restart("hdfs-datanode-1")
	h.use("after the restart of a DataNode", 3)

	s.restart("hdfs-namenode-0")
	h.use("after the restart of the NameNode", 3)

	added, deleteNode := s.addReplicaOnNewNode("hdfs-datanode", 4)
	h.use("after scaling up", 4)

	s.loseNodeOf(added, deleteNode)
	s.restart("hdfs-namenode-0") // until then, it tells clients the former address: HDFS-17877
	h.use("after the loss of a node", 4)

	s.scale("hdfs-datanode", 3)
	h.use("after scaling down", 3)
}

// hdfsOf is the HDFS of a scenario.
type hdfsOf struct {
	*scenario
	// files are the contents of all files, which are named by their index.
	files []string
}

// errOtherDataNode is returned for a connection to another DataNode than the client may use.
var errOtherDataNode = errors.New("the client may not use this DataNode")

// use checks that the client writes a file to all DataNodes, reads it from each alone, and reads all files that it has
// ever written. The NameNode does not choose a DataNode before it has heard of its address, which no one is told, and
// adds no replica for minutes, so the client writes until all have one.
func (h *hdfsOf) use(content string, dataNodes int) {
	h.Helper()
	var used []string
	h.eventually(func(context.Context) error {
		if err := h.write(content, dataNodes); err != nil {
			return err
		}
		used = nil
		for i := range dataNodes {
			only, err := h.endpoints(fmt.Sprintf("listener-hdfs-datanode-%d", i), "data")
			if err != nil {
				return err
			}
			if err := h.readFrom(only, content); err != nil {
				return err
			}
			used = append(used, only)
		}
		return nil
	})
	h.files = append(h.files, content)
	h.eventually(func(context.Context) error {
		for i, want := range h.files {
			if err := h.read(i, want, testbed.ClientDial); err != nil {
				return err
			}
		}
		return nil
	})
	h.Logf("%s: wrote a file to %d DataNodes, and read it from %s", content, dataNodes, strings.Join(used, " and "))
}

// readFrom reads the newest file from a single DataNode.
func (h *hdfsOf) readFrom(only, content string) error {
	return h.read(len(h.files), content, func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != only {
			return nil, fmt.Errorf("%w: %s", errOtherDataNode, address)
		}
		return testbed.ClientDial(ctx, network, address)
	})
}

// dial is how a client connects.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// withClient calls do with a client outside the cluster that connects to DataNodes by a function.
func (h *hdfsOf) withClient(dataNodes dial, do func(*hdfs.Client) error) error {
	nameNode, err := h.endpoints("listener-hdfs-namenode-0", "rpc")
	if err != nil {
		return err
	}
	client, err := hdfs.NewClient(hdfs.ClientOptions{
		Addresses: []string{nameNode}, User: "hdfs", UseDatanodeHostname: true,
		NamenodeDialFunc: testbed.ClientDial, DatanodeDialFunc: dataNodes,
	})
	if err != nil {
		return fmt.Errorf("connecting to the NameNode: %w", err)
	}
	return errors.Join(do(client), client.Close())
}

// write writes the next file, with as many replicas as there are DataNodes.
func (h *hdfsOf) write(content string, replicas int) error {
	name := fmt.Sprintf("/%d", len(h.files))
	return h.withClient(testbed.ClientDial, func(client *hdfs.Client) error {
		_ = client.Remove(name) // what an earlier try has left
		file, err := client.CreateFile(name, replicas, 1<<20, 0o644)
		if err != nil {
			return err
		}
		if err := file.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		_, err = file.Write([]byte(content))
		return errors.Join(err, file.Close())
	})
}

// read reads a file and compares its content.
func (h *hdfsOf) read(i int, want string, dataNodes dial) error {
	return h.withClient(dataNodes, func(client *hdfs.Client) error {
		got, err := client.ReadFile(fmt.Sprintf("/%d", i))
		if err == nil && !bytes.Equal(got, []byte(want)) {
			err = fmt.Errorf("file %d contains %q, want %q", i, got, want)
		}
		return err
	})
}
