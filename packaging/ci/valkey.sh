# Valkey's own test over RDMA, in its source folder, in a job that has Ferroce (setup.sh). It needs
# neither root nor a kernel module.
make -j"$(nproc)" BUILD_RDMA=yes
./runtest-rdma | tee runtest-rdma.log
# The script ends with 0 whatever happens.
grep 'test over .* \[OK\]' runtest-rdma.log
