// Package volume writes the files of listener volumes, and is the only package of the node agent that writes below the
// kubelet's directory of Pods. It mounts nothing: a volume is a plain directory.
//
// A volume is the Pod's to write to as well, and a Pod may be hostile. So nothing is opened, created or removed but
// through an [os.Root], whose names cannot lead out of the directory that it was opened on, and the one renaming that
// it cannot do is between directories that it has opened; no content of a volume is waited for, followed to the
// outside, or read without a bound; and nothing that a Pod leaves in the way keeps its volume from being rewritten or
// removed.
//
// The files are those of contract 1.4, and lie where the kubelet puts those of a ConfigMap: in a directory of their own
// for each generation, which one rename of a link makes visible as a whole.
//
//	..generation-X/addresses/<address>/address
//	..generation-X/addresses/<address>/ports/<port name>
//	..generation-X/default-address -> addresses/<first address>
//	..data                         -> ..generation-X
//	addresses                      -> ..data/addresses
//	default-address                -> ..data/default-address
//
// X is the Pod's namespace and something random.
//
// Directories and files are made by mkdir and writeFile alone, with their final modes and labels. Links are made in
// directories that are labelled already, whose label they take.
//
// Files are not synced to the disk: after a crash of the node the kubelet publishes every volume again, and what is
// then found torn is written anew.
package volume
