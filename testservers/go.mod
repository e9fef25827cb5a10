module baton/testservers

go 1.26
