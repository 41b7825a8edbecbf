variant plain
variant joint kl_gradients 's/finish_step<1>/finish_step<0>/;/keep_before_wait(even.x)/d'
variant chunk21 kl 's/{1} << 20/{1} << 21/'
