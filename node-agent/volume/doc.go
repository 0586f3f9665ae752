// Package volume writes the files of listener volumes. It is the only package of the node agent that writes below the
// kubelet's directory of Pods. It mounts nothing: a volume is a plain directory.
//
// A Pod can write to its volume, and may be hostile. Therefore:
//   - Files are opened, created and removed only through an [os.Root], which refuses to leave its directory. The one
//     operation that os.Root lacks renames between directories that it has opened.
//   - Reading from a volume never blocks, never follows a link out of it, and is bounded.
//   - Nothing that a Pod creates in its volume prevents the volume from being rewritten or removed.
//
// The files are those that consumers read (contract: the files), and two more with the default address as variables. As
// in the volume of a ConfigMap, each generation of them has a directory of its own, which becomes visible as a whole
// when one link is renamed.
//
//	..generation-X/addresses/<address>/address
//	..generation-X/addresses/<address>/ports/<port name>
//	..generation-X/default-address -> addresses/<first address>
//	..generation-X/default-address.env
//	..generation-X/default-address.quoted.env
//	..data                         -> ..generation-X
//	addresses                      -> ..data/addresses
//	default-address                -> ..data/default-address
//	default-address.env            -> ..data/default-address.env
//	default-address.quoted.env     -> ..data/default-address.quoted.env
//
// X is the Pod's namespace and a random string.
//
// Only mkdir and writeFile create directories and files, with their final modes and labels. Links inherit the label of
// their directory, which is labelled before.
//
// Files are not synced to disk: after a crash of the node the kubelet publishes every volume again, and incomplete
// content is rewritten then.
package volume
