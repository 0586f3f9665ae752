// Package maven has images of unmodified products in Java that route their own clients, for the scenarios of the
// recipes in docs/recipes. It must never change a product, nor bring a configuration: that is in the recipe.
package maven

import (
	"context"
	"fmt"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
)

// The names of the published images, which recipes use. The images of this package have them on test clusters.
const (
	KafkaImage     = "apache/kafka:4.0.1"
	HDFSImage      = "apache/hadoop:3.4.1"
	ZooKeeperImage = "zookeeper:3.9.4"
)

// hadoopDir is the directory of HDFS in HDFSImage.
const hadoopDir = "/opt/hadoop/share/hadoop/hdfs"

// User is the user and the group that Kafka and HDFS run as, in Apache's images, too.
const User = 1000

// Kafka returns the spec of an image with Apache Kafka's jars where KafkaImage has them.
func Kafka(ctx context.Context) (image.Spec, error) { return java(ctx, "kafka", "/opt/kafka/libs") }

// HDFS returns the spec of an image with the jars of Hadoop's HDFS, in one of the directories where HDFSImage has them.
func HDFS(ctx context.Context) (image.Spec, error) {
	spec, err := java(ctx, "hdfs", hadoopDir+"/lib")
	if err != nil {
		return image.Spec{}, err
	}
	// HDFS looks for its pages, which are not in the jars, and does not start without the directories.
	for _, program := range []string{"hdfs", "datanode"} {
		spec.Dirs[hadoopDir+"/webapps/"+program] = 0o755
	}
	return spec, nil
}

// ZooKeeper returns the spec of an image with the jars of Apache ZooKeeper where ZooKeeperImage has them.
func ZooKeeper(ctx context.Context) (image.Spec, error) {
	spec, err := java(ctx, "zookeeper", "/apache-zookeeper-3.9.4-bin/lib")
	if err != nil {
		return image.Spec{}, err
	}
	spec.User = "" // the published image begins as root
	// Without it, the logger logs everything.
	spec.Files["/conf/logback.xml"] = image.File{Content: []byte(`<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %m%n</pattern></encoder></appender>
  <root level="INFO"><appender-ref ref="CONSOLE"/></root>
</configuration>
`)}
	return spec, nil
}

// java returns the spec of an image with Debian's Java, the jars of a product in a directory, and programs that Hadoop
// runs.
func java(ctx context.Context, product, dir string) (image.Spec, error) {
	jars, err := ensureJars(ctx, product)
	if err != nil {
		return image.Spec{}, fmt.Errorf("fetching the jars of %s: %w", product, err)
	}
	spec, err := cluster.DebianImage(ctx, "default-jre-headless", "dash", "bash", "coreutils")
	if err != nil {
		return image.Spec{}, err
	}
	spec.Files[dir] = image.File{Source: jars, Mode: 0o644}
	spec.Links["/usr/bin/java"] = "/usr/lib/jvm/default-java/bin/java"
	spec.Links["/usr/bin/sh"] = "dash"
	// Hadoop needs a name for its user.
	spec.Files["/etc/passwd"] = image.File{Content: fmt.Appendf(nil, "%s:x:%d:%d::/:/bin/sh\n", product, User, User)}
	spec.User = fmt.Sprint(User)
	return spec, nil
}
