# usage: musl.sh, in a folder with the sources of pciutils, rdma-core and perftest
#
# Builds ibv_rc_pingpong, rping and perftest by musl's compiler, into bin. The libraries that they
# are linked to are Debian's, for their names and symbols; what they find when they run is another.
set -eu
top=$PWD
mkdir -p include/infiniband include/rdma include/pci lib bin
# Musl's compiler looks for no others; these name no C library.
cp -r /usr/include/linux /usr/include/asm-generic /usr/include/x86_64-linux-gnu/asm include
cp -r rdma-core-*/kernel-headers/rdma include
cp rdma-core-*/libibverbs/*.h rdma-core-*/libibumad/*.h include/infiniband
cp rdma-core-*/kernel-headers/rdma/ib_user_ioctl_verbs.h rdma-core-*/librdmacm/ib.h include/infiniband
cp rdma-core-*/librdmacm/*.h include/rdma
mkdir include/valgrind
cp rdma-core-*/buildlib/fixup-include/valgrind-memcheck.h include/valgrind/memcheck.h
for name in ibverbs rdmacm; do
	ln -sf /usr/lib/x86_64-linux-gnu/lib$name.so.1 lib/lib$name.so
done
cc="musl-gcc -O2 -isystem $top/include"
ld="-L$top/lib -Wl,--allow-shlib-undefined"
# What perftest links to besides.
make -s -C pciutils-* CC="$cc" ZLIB=no DNS=no LIBKMOD=no HWDB=no SHARED=no lib/libpci.a
cp pciutils-*/lib/libpci.a lib
cp pciutils-*/lib/*.h include/pci
cd rdma-core-*
for name in STATEMENT_EXPR TYPEOF BUILTIN_TYPES_COMPATIBLE_P BUILTIN_EXPECT ISBLANK LITTLE_ENDIAN; do
	echo "#define HAVE_$name 1"
done > config.h
echo '#define RDMA_CDEV_DIR "/dev/infiniband"' >> config.h
(
	cd libibumad
	$cc -I.. -c *.c
	ar rcs ../../lib/libibumad.a *.o
)
(
	cd libibverbs/examples
	$cc -I../.. -o "$top/bin/ibv_rc_pingpong" rc_pingpong.c pingpong.c $ld -libverbs
	$cc -I../.. -o "$top/bin/ibv_devices" device_list.c $ld -libverbs
)
(
	cd librdmacm/examples
	$cc -I../.. -o "$top/bin/rping" rping.c common.c $ld -lrdmacm -libverbs
)
cd ../perftest-*
./configure --quiet CC=musl-gcc CFLAGS="-O2 -isystem $top/include -D_SC_LEVEL1_DCACHE_LINESIZE=190" LDFLAGS="$ld"
make -s
cp ib_send_lat ib_write_bw "$top/bin"
