//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/listener-operator/listener-operator/test/maven"
)

// A client outside the cluster, which knows the addresses of the bootstrap Listener, writes to and reads from each
// broker, while brokers restart, are added and removed, and lose their node.
func TestProductKafka(t *testing.T) {
	s := newRecipe(t, maven.KafkaImage, maven.Kafka)
	s.provideDisks(maven.User, slices.Concat(claimsOf("data", "kafka-controller", 3), claimsOf("data", "kafka", 4))...)
	s.applyRecipe("kafka")
	s.awaitReplicas("kafka-controller", 3)
	s.awaitReplicas("kafka", 3)
	k := &kafka{scenario: s, written: map[string][]string{}, dial: testbed.ClientDial}
	k.use("at first", 3)

	s.restart("kafka-1")
	k.use("after a restart", 3)

	added, deleteNode := s.addReplicaOnNewNode("kafka", 4)
	k.use("after scaling up", 4)
	port := k.advertised(3)

	s.loseNodeOf(added, deleteNode)
	k.use("after the loss of a node", 4)

	s.scale("kafka", 3)
	k.use("after scaling down", 3)

	s.scale("kafka", 4)
	k.use("after scaling up again", 4)
	if again := k.advertised(3); again != port {
		t.Errorf("kafka-3 has the node port %s, and had %s", again, port)
	}

	s.applyTLS("kafka")
	k.dial = s.dialTLS
	k.use("with TLS", 4)
	s.awaitReload("kafka", "external", s.handshakeTLS)
	k.use("with the next certificates", 4)
}

// kafka is the Kafka of a scenario.
type kafka struct {
	*scenario
	// written has the values of all records, by topic.
	written map[string][]string
	// dial is how the client connects.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// replicated is a topic on the first three brokers. Any other topic is on a single one.
const replicated = "replicated"

// use checks that the client learns the address of each broker, writes a record to each, and reads all that it has ever
// written.
func (k *kafka) use(value string, brokers int32) {
	k.Helper()
	bootstrap, err := k.endpoints("kafka-bootstrap", "external")
	k.must(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.Dialer(k.dial))
	k.must(err)
	defer client.Close()
	k.awaitBrokers(client, brokers)
	k.write(client, replicated, []int32{0, 1, 2}, value)
	for broker := range brokers {
		k.write(client, fmt.Sprintf("only-%d", broker), []int32{broker}, value)
	}
	k.read(replicated, bootstrap)
	for broker := range brokers {
		k.read(fmt.Sprintf("only-%d", broker), bootstrap)
	}
	k.Logf("%s: used %d brokers, beginning with %s", value, brokers, bootstrap)
}

// awaitBrokers waits until the client learns exactly the addresses in the Listeners of these brokers.
func (k *kafka) awaitBrokers(client *kgo.Client, brokers int32) {
	k.Helper()
	k.eventually(func(ctx context.Context) error {
		want, got := map[int32]string{}, map[int32]string{}
		for broker := range brokers {
			var err error
			if want[broker], err = k.endpoints(fmt.Sprintf("listener-kafka-%d", broker), "external"); err != nil {
				return err
			}
		}
		metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
		if err != nil {
			return err
		}
		for _, broker := range metadata.Brokers {
			got[broker.NodeID] = net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("brokers (-Listeners +what they advertise):\n%s", diff)
		}
		return nil
	})
}

// write writes a record to a topic, which it creates on these brokers if it is the first one.
func (k *kafka) write(client *kgo.Client, topic string, brokers []int32, value string) {
	k.Helper()
	ctx := k.timeoutContext()
	if len(k.written[topic]) == 0 {
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Replicas = brokers
		inSync := kmsg.NewCreateTopicsRequestTopicConfig()
		inSync.Name, inSync.Value = "min.insync.replicas", kmsg.StringPtr(strconv.Itoa((len(brokers)+1)/2))
		created := kmsg.NewCreateTopicsRequestTopic()
		created.Topic, created.NumPartitions, created.ReplicationFactor = topic, -1, -1
		created.ReplicaAssignment, created.Configs = append(created.ReplicaAssignment, assignment), append(created.Configs, inSync)
		request := kmsg.NewPtrCreateTopicsRequest()
		request.Topics = append(request.Topics, created)
		response, err := request.RequestWith(ctx, client)
		if err == nil {
			err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
		}
		if err != nil {
			k.Fatalf("creating topic %s: %v", topic, err)
		}
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		k.Fatalf("writing to topic %s: %v", topic, err)
	}
	k.written[topic] = append(k.written[topic], value)
}

// read reads a topic from the start, with a client of its own, and compares the records with those written.
func (k *kafka) read(topic, bootstrap string) {
	k.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.Dialer(k.dial), kgo.ConsumeTopics(topic))
	k.must(err)
	defer client.Close()
	ctx := k.timeoutContext()
	var got []string
	for len(got) < len(k.written[topic]) && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if diff := cmp.Diff(k.written[topic], got); diff != "" {
		k.Fatalf("records of topic %s (-written +read):\n%s", topic, diff)
	}
}

// advertised returns the node port of a broker.
func (k *kafka) advertised(broker int) string {
	k.Helper()
	endpoint, err := k.endpoints(fmt.Sprintf("listener-kafka-%d", broker), "external")
	k.must(err)
	_, port, err := net.SplitHostPort(endpoint)
	k.must(err)
	return port
}
